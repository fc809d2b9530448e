"""FuseOps with ``prologues``: norms of few rows are fused into the matmul that reads them."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler.api import parse
from mlc_compiler.interp import run_function
from mlc_compiler.passes.annotate_patterns import AnnotatePatterns
from mlc_compiler.passes.fuse_ops import FuseOps, Prologues
from mlc_compiler.passes.fuse_tensor_functions import FuseTensorFunctions
from mlc_compiler.passes.legalize import Legalize
from mlc_compiler.pipeline import run_passes
from mlc_compiler.tir.nodes import PrimFunc

MODULE = """
@R.function
def main(x: R.Tensor(({rows}, 16), "float32"), gamma: R.Tensor((16,), "float32"), w: R.Tensor((24, 16), "float32")):
    with R.dataflow():
        normed = R.nn.rms_norm(x, gamma, axes=[-1], epsilon=1e-5)
        y = R.matmul(normed, R.permute_dims(w, [1, 0]))
        z = R.nn.relu(y)
        {more}
        R.output({result})
    return {result}
"""


FEW = Prologues(rows=8, nbytes=1024, dtypes=frozenset({"float32"}))


def functions(rows: str, more: str = "", result: str = "z", prologues: Prologues = FEW) -> list[str]:
    mod = parse(MODULE.format(rows=rows, more=more, result=result))
    steps = (Legalize(), AnnotatePatterns(), FuseOps(prologues), FuseTensorFunctions())
    fused = run_passes(mod, steps)
    arrays = [np.random.default_rng(0).standard_normal(s).astype(np.float32) for s in ((3, 16), (16,), (24, 16))]
    if rows in ("3", '"n"'):
        expected, got = (run_function(m, "main", *arrays) for m in (mod, fused))
        np.testing.assert_array_equal(got, expected)
    return [name for name, f in fused.of_type(PrimFunc).items() if name.startswith("fused")]


def test_a_norm_of_few_rows_joins_the_product() -> None:
    assert functions("3") == ["fused_rms_norm_matmul_relu"]


@pytest.mark.parametrize("rows", ["9", '"n"'])
def test_other_norms_stay_apart(rows: str) -> None:
    assert functions(rows) == ["fused_matmul_relu"]


@pytest.mark.parametrize(("nbytes", "dtype"), [(3 * 16 * 4 - 1, "float32"), (1024, "float16")])
def test_rows_that_a_product_has_no_room_or_no_kernel_for_stay_apart(nbytes: int, dtype: str) -> None:
    assert functions("3", prologues=Prologues(8, nbytes, frozenset({dtype}))) == ["fused_matmul_relu"]
    exact = Prologues(3, 3 * 16 * 4, frozenset({"float32"}))
    assert functions("3", prologues=exact) == ["fused_rms_norm_matmul_relu"]


def test_a_norm_with_two_readers_stays_apart() -> None:
    assert functions("3", "s = R.add(normed, x)\n        t = R.concat([z, s], axis=1)", "t") == [
        "fused_matmul_relu",
        "fused_add_concat",
    ]
