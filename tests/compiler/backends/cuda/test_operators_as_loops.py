"""Every operator with symbolic sizes, scheduled for GPUs and run as loops on the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mlc_compiler import Library
from mlc_compiler.ir.module import IRModule
from mlc_compiler.pipeline import entries, run_passes
from mlc_compiler.target import Target
from tests.compiler.backends.cuda.as_loops import build_as_loops
from tests.compiler.relax.check_op import arrays_in, graph_of
from tests.compiler.relax.test_every_operator import CASES, M, N, expected


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """A library with a function for each operator; sizes 3 and 5 are symbolic."""
    functions = {}
    for name, case in CASES.items():
        symbol = name.replace(".", "_")
        graph = graph_of(name, case.args, case.attrs, symbolic=(N, M))["main"]
        functions[symbol] = graph.with_attr("global_symbol", symbol)
    path = Path(tmp_path_factory.mktemp("operators")) / "lib.so"
    build_as_loops(run_passes(IRModule(functions), entries()), Target("cuda:sm_80"), {False: path})
    return Library(path)


@pytest.mark.parametrize("name", CASES)
def test_results(lib: Library, name: str) -> None:
    case = CASES[name]
    wanted = expected(case, *case.args)
    got = lib[name.replace(".", "_")](*(a.copy() for a in arrays_in(case.args)))
    for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (got, wanted)), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=max(case.tolerance, 2e-6), atol=max(case.tolerance, 2e-6))
