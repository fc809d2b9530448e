"""Attention over keys that are stored unrotated: each is rotated by its position while its page is read."""

# The bodies are TVMScript, which is read as text; to a type checker they make no sense.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache

from ..script import T
from ..tir.nodes import PrimFunc
from .kv_kernels import MASKED, PAGE_SIZE, AttentionShape


@cache
def paged_attention_inline(shape: AttentionShape) -> PrimFunc:
    """As ``paged_attention``; q too comes unrotated. inv_freq: float32 [R/2], the angle of one position by pair."""
    layers, heads, kv_heads, dim = shape.layers, shape.heads, shape.kv_heads, shape.head_dim
    dtype, kv_dtype, page_size = shape.dtype, shape.kv_dtype, PAGE_SIZE
    group, scale, window, masked = heads // kv_heads, shape.scale, shape.sliding_window, MASKED
    rotary, half, factor = shape.rotary_dim, shape.rotary_dim // 2, shape.attention_factor

    @T.prim_func(private=True)
    def paged_attention_inline(
        var_q: T.handle,
        var_k: T.handle,
        var_v: T.handle,
        var_table: T.handle,
        var_seq: T.handle,
        var_pos: T.handle,
        inv_freq: T.Buffer((half,), "float32"),
        var_out: T.handle,
        layer: T.int64,
    ):
        T.func_attr({"tir.noalias": True, "tir.is_scheduled": True, "num_outputs": 1})
        n = T.int64()
        num_seqs = T.int64()
        max_pages = T.int64()
        num_pages = T.int64()
        q = T.match_buffer(var_q, (n, heads, dim), dtype)
        k_pages = T.match_buffer(var_k, (layers, num_pages, kv_heads, dim, page_size), kv_dtype)
        v_pages = T.match_buffer(var_v, (layers, num_pages, kv_heads, page_size, dim), kv_dtype)
        page_table = T.match_buffer(var_table, (num_seqs, max_pages), "int32")
        token_seq = T.match_buffer(var_seq, (n,), "int32")
        token_pos = T.match_buffer(var_pos, (n,), "int32")
        out = T.match_buffer(var_out, (n, heads, dim), dtype)
        for token_head in T.parallel(n * heads):
            token = token_head // heads
            head = token_head % heads
            sequence = T.Cast("int64", token_seq[token])
            position = T.Cast("int64", token_pos[token])
            first = T.max(position - (window - 1), 0) // page_size if window else T.int64(0)
            rotated = T.decl_buffer((dim,), "float32", scope="local")
            cos = T.decl_buffer((page_size,), "float32", scope="local")
            sin = T.decl_buffer((page_size,), "float32", scope="local")
            scores = T.decl_buffer((page_size,), "float32", scope="local")
            greatest = T.decl_buffer((1,), "float32", scope="local")
            total = T.decl_buffer((1,), "float32", scope="local")
            acc = T.decl_buffer((dim,), "float32", scope="local")
            for d in range(half):
                angle = T.Cast("float32", position) * inv_freq[d]
                x = T.Cast("float32", q[token, head, d]) * T.float32(factor * factor)
                y = T.Cast("float32", q[token, head, half + d]) * T.float32(factor * factor)
                rotated[d] = x * T.cos(angle) - y * T.sin(angle)
                rotated[half + d] = y * T.cos(angle) + x * T.sin(angle)
            for d in range(dim - rotary):
                rotated[rotary + d] = T.Cast("float32", q[token, head, rotary + d])
            greatest[0] = T.float32(masked)
            total[0] = T.float32(0)
            for d in T.vectorized(dim):
                acc[d] = T.float32(0)
            for i in range(position // page_size - first + 1):
                page = T.Cast("int64", page_table[sequence, first + i])
                last = position - (first + i) * page_size
                for t in T.vectorized(page_size):
                    scores[t] = T.float32(0)
                for d in range(half):
                    for t in T.vectorized(page_size):
                        cos[t] = T.cos(T.Cast("float32", (first + i) * page_size + t) * inv_freq[d])
                        sin[t] = T.sin(T.Cast("float32", (first + i) * page_size + t) * inv_freq[d])
                    for t in T.vectorized(page_size):
                        scores[t] = scores[t] + T.Cast("float32", k_pages[layer, page, head // group, d, t]) * (
                            rotated[d] * cos[t] + rotated[half + d] * sin[t]
                        )
                    for t in T.vectorized(page_size):
                        scores[t] = scores[t] + T.Cast("float32", k_pages[layer, page, head // group, half + d, t]) * (
                            rotated[half + d] * cos[t] - rotated[d] * sin[t]
                        )
                for d in range(dim - rotary):
                    for t in T.vectorized(page_size):
                        scores[t] = scores[t] + rotated[rotary + d] * T.Cast(
                            "float32", k_pages[layer, page, head // group, rotary + d, t]
                        )
                for t in T.vectorized(page_size):
                    scores[t] = T.Select(
                        (t <= last and t > last - window) if window else t <= last,
                        scores[t] * T.float32(scale),
                        T.float32(masked),
                    )
                before = greatest[0]
                for t in range(page_size):
                    greatest[0] = T.max(greatest[0], scores[t])
                shrink = T.exp(before - greatest[0])
                for t in T.vectorized(page_size):
                    scores[t] = T.exp(scores[t] - greatest[0])
                total[0] = total[0] * shrink
                for t in range(page_size):
                    total[0] = total[0] + scores[t]
                for d in T.vectorized(dim):
                    acc[d] = acc[d] * shrink
                for t in range(T.min(page_size, last + 1)):
                    for d in T.vectorized(dim):
                        acc[d] = acc[d] + scores[t] * T.Cast("float32", v_pages[layer, page, head // group, t, d])
            for d in T.vectorized(dim):
                out[token, head, d] = T.Cast(dtype, acc[d] / total[0])

    return paged_attention_inline
