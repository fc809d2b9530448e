"""Attention over whole tensors: the kernel against numpy, and the graphs that are fused to its operator."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from mlc_compiler import build
from mlc_compiler.backends.cpu.passes.fuse_attention import FuseAttention
from mlc_compiler.frontend.blocks import attention
from mlc_compiler.ir.module import IRModule
from mlc_compiler.passes.common_subexpressions import CommonSubexpressions
from mlc_compiler.relax.builder import BlockBuilder
from mlc_compiler.relax.dataflow import is_op
from mlc_compiler.relax.info import tensor_info
from mlc_compiler.relax.nodes import Function, Var
from tests.compiler.relax.check_op import graph_of
from tests.compiler.relax.test_every_operator import normal

QUERY, KEYS, VALUES = normal(2, 3, 131, 12), normal(2, 3, 12, 87), normal(2, 3, 87, 20)
LOWEST = np.finfo(np.float32).min
SHARED = np.random.default_rng(3).random((2, 1, 131, 87)) > 0.5
SHARED[0, 0, 7] = False  # a query that sees nothing
PADDING = np.where(np.arange(87) < 80, np.float32(0), LOWEST) * np.array([1, 0], "f4").reshape(2, 1, 1, 1)


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None, scale: float) -> np.ndarray:
    scores = q.astype("f8") @ k * scale
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize(
    "mask", [None, SHARED, PADDING, np.full((1, 87), LOWEST)], ids=["none", "bool", "sum", "lowest"]
)
@pytest.mark.parametrize("zero_rows", [False, True])
def test_kernel(mask: np.ndarray | None, zero_rows: bool):
    args: tuple[np.ndarray, ...] = (QUERY, KEYS, VALUES) if mask is None else (QUERY, KEYS, VALUES, mask)
    attrs: dict[str, Any] = {"scale": 0.25, "zero_rows": zero_rows}
    mod = graph_of("nn.dense_attention", args, attrs, symbolic=() if zero_rows else (131, 87))
    wanted = reference(QUERY, KEYS, VALUES, mask, 0.25)
    got = build(mod, target="cpu")["main"](*args)
    np.testing.assert_allclose(got, np.nan_to_num(wanted) if zero_rows else wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("queries", "keys"), [(0, 5), (4, 0)])
def test_empty_sizes(queries: int, keys: int):
    mod = graph_of("nn.dense_attention", (normal(2, 7, 3), normal(2, 3, 9), normal(2, 9, 3)), symbolic=(7, 9))
    got = build(mod, target="cpu")["main"](normal(2, queries, 3), normal(2, 3, keys), normal(2, keys, 3))
    np.testing.assert_array_equal(got, np.zeros((2, queries, 3), "f4"))


def imported(mask: str, is_causal: bool) -> IRModule:
    """The attention of imported models as ``main``."""
    shapes = [((2, 9, 8), "float32")] * 3 + [((9, 9), mask)] * bool(mask)
    params = [Var(f"x{i}", tensor_info(*shape)) for i, shape in enumerate(shapes)]
    builder = BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(attention(*params, is_causal=is_causal))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize(("mask", "is_causal"), [("", False), ("", True), ("bool", False), ("float32", False)])
def test_imported_attention_is_one_operator(mask: str, is_causal: bool):
    mod = imported(mask, is_causal)
    q, k, v = (normal(2, 9, 8) for _ in range(3))
    seen = np.tri(9, dtype=bool) if is_causal else SHARED[1, 0, :9, :9].copy() if mask else None
    args = [q, k, v, seen if mask == "bool" else normal(9, 9)][: 4 if mask else 3]
    func = FuseAttention().run(CommonSubexpressions().run(mod))["main"]
    assert isinstance(func, Function)
    (fused,) = (b.value for b in func.bindings if is_op(b.value, "nn.dense_attention"))
    assert fused.attrs == {"scale": pytest.approx(1 / math.sqrt(8)), "zero_rows": bool(mask)}
    wanted = reference(q, k.swapaxes(1, 2), v, args[3] if mask == "float32" else seen, 1 / math.sqrt(8))
    np.testing.assert_allclose(build(mod, target="cpu")["main"](*args), wanted, rtol=1e-5, atol=1e-6)
