"""FuseOps with ``gates``: an activation that combines both halves of a matmul's result is fused with it."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler.api import parse
from mlc_compiler.interp import run_function
from mlc_compiler.passes.annotate_patterns import AnnotatePatterns
from mlc_compiler.passes.fuse_ops import FuseOps, Gates
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
        {more}
        R.output({result})
    return {result}
"""
SPLIT = "parts = R.split(y, 2, axis=1)"
SWIGLU = (SPLIT, "gate = R.nn.silu(parts[0])", "z = R.multiply(gate, parts[1])")


def functions(
    *more: str, result: str = "z", rows: str = '"n"', dtypes: frozenset[str] = frozenset({"float32"})
) -> list[str]:
    """The names of the fused functions; asserts that the results stay the same."""
    mod = parse(MODULE.format(more="\n        ".join(more), result=result, rows=rows))
    steps = (Legalize(), AnnotatePatterns(), FuseOps(gates=Gates(dtypes)), FuseTensorFunctions())
    fused = run_passes(mod, steps)
    arrays = [np.random.default_rng(0).standard_normal(s).astype(np.float32) for s in ((4, 16), (16,), (24, 16))]
    expected, got = (run_function(m, "main", *arrays) for m in (mod, fused))
    np.testing.assert_array_equal(got, expected)
    return [name for name, f in fused.of_type(PrimFunc).items() if name.startswith("fused")]


def test_swiglu_joins_the_product() -> None:
    assert functions(*SWIGLU) == ["fused_matmul_split_silu_multiply"]


def test_what_follows_at_the_same_place_joins_too() -> None:
    assert functions(*SWIGLU, "s = R.nn.relu(z)", result="s") == ["fused_matmul_split_silu_multiply_relu"]


def test_other_dtypes_stay_apart() -> None:
    assert functions(*SWIGLU, dtypes=frozenset({"float16"})) == ["fused_split_silu_multiply"]


@pytest.mark.parametrize(
    ("more", "result"),
    [
        (("parts = R.split(y, 3, axis=1)", *SWIGLU[1:]), "z"),  # thirds
        ((*SWIGLU, "s = R.sum(y)", "t = R.add(z, s)"), "t"),  # another reader
        ((*SWIGLU, "s = R.permute_dims(z, [1, 0])"), "s"),  # results at other places
    ],
)
def test_others_stay_apart(more: tuple[str, ...], result: str) -> None:
    assert not any("matmul_split" in name for name in functions(*more, result=result))


def test_halves_of_the_rows_stay_apart() -> None:
    assert functions("parts = R.split(y, 2, axis=0)", *SWIGLU[1:], rows="4") == ["fused_split_silu_multiply"]


def test_the_parts_alone_stay_apart() -> None:
    assert functions("parts = R.split(y, 2, axis=1)", "z = parts[0]") == []
