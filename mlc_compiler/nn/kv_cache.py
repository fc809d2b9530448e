"""The paged KV cache as a traced function sees it: plain tensors that the caller owns, written in place."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mlc_errors import MLCError

from ..ir.expr import PrimExpr
from ..relax.nodes import constant
from ..tir import te
from . import kv_kernels, op, spec
from .kv_inline import paged_attention_inline
from .kv_kernels import PAGE_SIZE, AttentionShape
from .tensor import Tensor


class CacheError(MLCError, ValueError):
    """Sizes of a cache that do not go together."""


class RopeMode(enum.Enum):
    """Where rotary positions are applied."""

    NONE = "none"  # not at all
    NORMAL = "normal"  # keys are rotated before they are stored
    INLINE = "inline"  # keys are stored as they are; attention rotates them


@dataclass(frozen=True, eq=False)
class KVCacheConfig:
    """Sizes and types of a cache.

    inv_freq: float32 [R/2], the angle by which one position turns each pair; R <= head_dim elements are rotated.
    attention_factor: multiplies cosines and sines. sliding_window: how many positions a token sees; None: all.
    Raises CacheError for sizes that do not go together.
    """

    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    dtype: str = "float16"
    rope_mode: RopeMode = RopeMode.NONE
    inv_freq: np.ndarray | None = None
    attention_factor: float = 1.0
    sliding_window: int | None = None

    def __post_init__(self) -> None:
        if self.num_attention_heads % self.num_key_value_heads:
            heads = f"{self.num_attention_heads} heads over {self.num_key_value_heads}"
            raise CacheError(f"num_key_value_heads: got {heads}; expected a divisor")
        if (self.rope_mode is RopeMode.NONE) != (self.inv_freq is None):
            raise CacheError(f"inv_freq: expected for rope_mode normal and inline only; got {self.rope_mode.value}")
        if self.inv_freq is not None and 2 * len(self.inv_freq) > self.head_dim:
            raise CacheError(f"inv_freq: got {len(self.inv_freq)} pairs; expected at most {self.head_dim // 2}")

    def spec(self, num_tokens: int | str) -> spec.Object:
        """The cache as an argument of an exported function that handles ``num_tokens`` tokens."""
        pages = (self.num_hidden_layers, "num_pages", self.num_key_value_heads)
        fields = {
            "k_pages": spec.Tensor((*pages, self.head_dim, PAGE_SIZE), self.dtype),
            "v_pages": spec.Tensor((*pages, PAGE_SIZE, self.head_dim), self.dtype),
            "page_table": spec.Tensor(("num_seqs", "max_pages"), "int32"),
            "token_seq": spec.Tensor((num_tokens,), "int32"),
            "token_pos": spec.Tensor((num_tokens,), "int32"),
        }
        return spec.Object(lambda **tensors: PagedKVCache(self, **tensors), fields, mutable=True)


class PagedKVCache:
    """Keys and values of all layers.

    token_seq, token_pos: int32 [n], the row of ``page_table`` that token i belongs to and its position there.
    """

    def __init__(
        self,
        config: KVCacheConfig,
        k_pages: Tensor,
        v_pages: Tensor,
        page_table: Tensor,
        token_seq: Tensor,
        token_pos: Tensor,
    ):
        self.config = config
        self.k_pages = k_pages
        self.v_pages = v_pages
        self.page_table = page_table
        self.token_seq = token_seq
        self.token_pos = token_pos
        self._angles: tuple[Tensor, Tensor] | None = None

    def attention_with_fused_qkv(
        self, layer_id: int, qkv: Tensor, num_qo_heads: int, sm_scale: float | None = None
    ) -> Tensor:
        """Append the keys and values of layer ``layer_id`` and attend causally.

        qkv: [n, H + 2 G, D], queries then keys then values. sm_scale: factor of the scores, 1/sqrt(D) when None.
        Returns [n, H, D].
        """
        shape = self._shape(qkv, num_qo_heads, sm_scale)
        q = self._append(shape, layer_id, qkv)
        args = [q, self.k_pages, self.v_pages, *self._places()]
        if self.config.rope_mode is RopeMode.INLINE:
            args.append(self._inv_freq())
            func = paged_attention_inline(shape)
        else:
            func = kv_kernels.paged_attention(shape)
        return op.tensor_ir_op(func, "paged_attention", args, (q.shape, qkv.dtype), [layer_id])

    def _shape(self, qkv: Tensor, heads: int, sm_scale: float | None) -> AttentionShape:
        c = self.config
        return AttentionShape(
            layers=c.num_hidden_layers,
            heads=heads,
            kv_heads=c.num_key_value_heads,
            head_dim=c.head_dim,
            rotary_dim=0 if c.inv_freq is None else 2 * len(c.inv_freq),
            dtype=qkv.dtype,
            kv_dtype=c.dtype,
            scale=1 / math.sqrt(c.head_dim) if sm_scale is None else sm_scale,
            sliding_window=c.sliding_window or 0,
            attention_factor=c.attention_factor,
        )

    def _append(self, shape: AttentionShape, layer_id: int, qkv: Tensor) -> Tensor:
        """Keys and values into the pages; gives the queries, rotated unless that comes later."""
        rotate = self.config.rope_mode is RopeMode.NORMAL
        func = kv_kernels.append_rotated(shape) if rotate else kv_kernels.append_raw(shape)
        args = [qkv, *(self.angles() if rotate else ()), *self._places(), self.k_pages, self.v_pages]
        out = [
            ((qkv.shape[0], shape.heads, shape.head_dim), qkv.dtype),
            (self.k_pages.shape, self.k_pages.dtype),
            (self.v_pages.shape, self.v_pages.dtype),
        ]
        inplace = [-1, len(args) - 2, len(args) - 1]
        q, self.k_pages, self.v_pages = op.tensor_ir_inplace_op(func, "kv_append", args, inplace, out, [layer_id])
        return q

    def _places(self) -> list[Tensor]:
        return [self.page_table, self.token_seq, self.token_pos]

    def angles(self) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the tokens' positions, float32 [n, R/2], computed once for all layers."""
        if self._angles is None:
            table = _rope_table(self.config.attention_factor)
            self._angles = op.tensor_expr_op(table, "rope", [self.token_pos, self._inv_freq()])
        return self._angles

    def _inv_freq(self) -> Tensor:
        return Tensor(constant(np.asarray(self.config.inv_freq, dtype=np.float32)))


def _rope_table(factor: float) -> Callable[[te.Tensor, te.Tensor], tuple[te.Tensor, te.Tensor]]:
    def rope(token_pos: te.Tensor, inv_freq: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
        shape = (token_pos.shape[0], inv_freq.shape[0])

        def angle(i: PrimExpr, j: PrimExpr) -> PrimExpr:
            return te.f32(token_pos[i]) * inv_freq[j]

        cos = te.compute(shape, lambda i, j: te.cos(angle(i, j)) * te.f32(factor), name="cos")
        sin = te.compute(shape, lambda i, j: te.sin(angle(i, j)) * te.f32(factor), name="sin")
        return cos, sin

    return rope
