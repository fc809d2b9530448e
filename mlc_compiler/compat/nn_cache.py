"""``nn.llm.kv_cache``: paged KV caches created by an exported function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mlc_errors import UnsupportedError

from ..ir.expr import IntImm, PrimExpr
from ..nn import op
from ..nn.kv_cache import SCALES, KVCacheConfig, PagedKVCache, RopeMode
from ..nn.states import NewState
from ..relax.nodes import PrimValue, ShapeExpr
from ..tir import te

__all__ = ["PagedKVCache", "RopeMode", "TIRPagedKVCache"]


def TIRPagedKVCache(
    *,
    max_batch_size: PrimExpr,
    max_total_seq_len: PrimExpr,
    prefill_chunk_size: PrimExpr,
    page_size: PrimExpr,
    support_sliding_window: int,
    layer_partition: ShapeExpr,
    num_hidden_layers: int,
    num_attention_heads: int,
    num_key_value_heads: int,
    head_dim: int,
    rope_mode: int | RopeMode,
    rope_scale: float,
    rope_theta: float,
    rope_scaling: Mapping[str, Any],
    rope_ext_factors: PrimValue,
    rotary_dim: int,
    dtype: str,
    target: Any,
) -> NewState:
    """Create a KV cache for ``max_batch_size`` sequences with ``max_total_seq_len`` tokens in total.

    rope_mode: 0: no rotation, 1: keys are rotated before they are stored, 2: when they are read. The rotation angle of
    pair i of ``rotary_dim`` / 2 is ``rope_scale * rope_theta ** (-2 i / rotary_dim)`` per position (Su et al. 2021).
    page_size: positions per page; must be 16, checked at run time. prefill_chunk_size, target: ignored, the cache
    does not depend on them. Raises UnsupportedError for sliding windows, pipeline stages, and
    scaled rotations.
    """
    _require("support_sliding_window", support_sliding_window, 0)
    _require("layer_partition", [_plain(v) for v in layer_partition.values], [0, num_hidden_layers])
    _require("rope_scaling", dict(rope_scaling), {})
    _require("rope_ext_factors", _plain(rope_ext_factors.value), 0)
    if rope_mode not in list(RopeMode):
        raise UnsupportedError(f"TIRPagedKVCache: rope_mode is {rope_mode}; expected 0, 1 or 2")
    mode = RopeMode(rope_mode)
    exponents = np.arange(0, rotary_dim, 2) / rotary_dim
    config = KVCacheConfig(
        num_hidden_layers,
        num_attention_heads,
        num_key_value_heads,
        head_dim,
        dtype,
        mode,
        None if mode is RopeMode.NONE else (rope_scale * rope_theta**-exponents).astype(np.float32),
    )
    return NewState(config, _arrays(config, max_batch_size, max_total_seq_len, page_size))


def _arrays(config: KVCacheConfig, sequences: PrimExpr, tokens: PrimExpr, page_size: PrimExpr) -> tuple[Any, ...]:
    """Keys, values, their scales if any, and an empty page table; each sequence may leave one page partly filled."""
    size = config.page_size
    columns = (tokens + (size - 1)) // size
    pages = (config.num_hidden_layers, columns + sequences, config.num_key_value_heads)

    def no_pages(rows: PrimExpr, columns: PrimExpr, given: PrimExpr) -> te.Tensor:
        te.require_equal(given, te.const(size, given.dtype), "page_size")
        return te.compute((rows, columns), lambda i, j: te.const(-1, "int32"), name="page_table")

    scales = [op.zeros((*pages, size), config.scale_dtype) for _ in SCALES] if config.scale_dtype else []
    return (
        op.zeros((*pages, config.head_dim, size), config.dtype),
        op.zeros((*pages, size, config.value_size), config.dtype),
        *scales,
        op.tensor_expr_op(no_pages, "page_table", [sequences, columns, page_size]),
    )


def _plain(value: PrimExpr) -> Any:
    return value.value if isinstance(value, IntImm) else value


def _require(name: str, got: Any, expected: Any) -> None:
    if got != expected:
        raise UnsupportedError(f"TIRPagedKVCache: {name} is {got}; expected {expected}")
