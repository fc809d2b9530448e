"""LiftAllocs keeps the results of the golden cases, for any initial contents of scratch memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlc_compiler.interp import run_prim_func
from mlc_compiler.interp.evaluate import evaluate
from mlc_compiler.ir import dtype as dt
from mlc_compiler.passes.lift_allocs import MAX_STACK_BYTES, LiftAllocs, lift_allocs
from mlc_compiler.script import parse
from mlc_compiler.tir.nodes import PrimFunc
from mlc_compiler.verifier import verify
from tests.compiler.schedules.meaning import random_arguments, sizes_of

CASES = sorted(Path(__file__).parent.glob("lift_allocs/*.py"))
SIZES = {"n": 8, "m": 5, "at": 2, "scale": 3.0, "reverse": 1}


def scratch_for(func: PrimFunc, arguments: list[Any]) -> list[np.ndarray]:
    """Arrays with arbitrary contents for the scratch parameters."""
    count = len(func.buffers) - int(func.attrs.get("num_scratch", 0))
    env = sizes_of(func, [*arguments[:count], *[None] * (len(func.buffers) - count), *arguments[count:]])
    shapes = [tuple(evaluate(s, env) for s in b.shape) for b in func.buffers[count:]]
    return [np.full(s, 77).astype(dt.to_numpy(b.dtype)) for s, b in zip(shapes, func.buffers[count:], strict=True)]


@pytest.mark.parametrize("case", CASES, ids=[c.stem for c in CASES])
def test_golden_cases_compute_the_same(case: Path) -> None:
    before = parse(case.read_text().partition("\n# ----\n")[0])
    after = LiftAllocs().run(before)
    verify(after)
    for name, func in before.of_type(PrimFunc).items():
        arguments = random_arguments(func, SIZES)
        expected, got = ([np.copy(a) if isinstance(a, np.ndarray) else a for a in arguments] for _ in range(2))
        run_prim_func(func, *expected)
        buffers = len(func.buffers)
        run_prim_func(after[name], *got[:buffers], *scratch_for(after[name], got), *got[buffers:])
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("count", "lifted"), [(MAX_STACK_BYTES // 4, 0), (MAX_STACK_BYTES // 4 + 1, 1)])
def test_what_fits_on_the_stack_stays_there(count: int, lifted: int) -> None:
    source = f"""
@T.prim_func
def f(y: T.Buffer((2,), "float32")):
    for i in T.parallel(2):
        row = T.decl_buffer(({count},), "float32")
        row[{count - 1}] = T.float32(1)
        y[i] = row[{count - 1}]
"""
    func = parse("@I.ir_module\nclass Module:" + source.replace("\n", "\n    "))["f"]
    assert lift_allocs(func).attrs.get("num_scratch", 0) == lifted
