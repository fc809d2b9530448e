"""Tensor functions of the paged KV cache, scheduled by hand: threads over (token, head), SIMD over slots or elements.

Shapes: n tokens; H query heads and G key/value heads of D elements; L layers; pages of 16 slots.
k_pages [L, pages, G, D, 16] and v_pages [L, pages, G, 16, D]: scores of a page's 16 tokens, and the D elements of the
result, are then contiguous. page_table int32 [sequences, pages of a sequence] gives page numbers; token_seq and
token_pos int32 [n] give a token's row there and its position.
"""

# The bodies are TVMScript, which is read as text; to a type checker they make no sense.
# mypy: ignore-errors

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ..script import T
from ..tir.nodes import PrimFunc

PAGE_SIZE = 16
MASKED = -1e30
CHAINS = 4  # independent sums of one dot product, so that multiply-adds overlap
REGISTERS, SIMD_WIDTH = 16, 16  # for results; the others hold keys, values and scores


@dataclass(frozen=True)
class AttentionShape:
    """What the kernels are made for.

    layers, heads, kv_heads, head_dim: L, H, G, D. rotary_dim: R, how many elements of a head are rotated. dtype: of qkv
    and of the result; kv_dtype: of the pages. scale: factor of the scores. sliding_window: how many positions a token
    sees, 0 for all. attention_factor: multiplies cosines and sines, where attention itself rotates.
    """

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rotary_dim: int
    dtype: str
    kv_dtype: str
    scale: float
    sliding_window: int = 0
    attention_factor: float = 1.0


@cache
def append_raw(shape: AttentionShape) -> PrimFunc:
    """Store keys and values of n tokens as they are, and copy the queries to q [n, H, D].

    qkv: [n, H + 2 G, D], queries then keys then values.
    """
    layers, heads, kv_heads, dim = shape.layers, shape.heads, shape.kv_heads, shape.head_dim
    dtype, kv_dtype, page_size = shape.dtype, shape.kv_dtype, PAGE_SIZE

    @T.prim_func(private=True)
    def kv_append(
        var_qkv: T.handle,
        var_table: T.handle,
        var_seq: T.handle,
        var_pos: T.handle,
        var_k: T.handle,
        var_v: T.handle,
        var_q: T.handle,
        layer: T.int64,
    ):
        T.func_attr({"tir.noalias": True, "tir.is_scheduled": True, "num_outputs": 1})
        n = T.int64()
        num_seqs = T.int64()
        max_pages = T.int64()
        num_pages = T.int64()
        qkv = T.match_buffer(var_qkv, (n, heads + 2 * kv_heads, dim), dtype)
        page_table = T.match_buffer(var_table, (num_seqs, max_pages), "int32")
        token_seq = T.match_buffer(var_seq, (n,), "int32")
        token_pos = T.match_buffer(var_pos, (n,), "int32")
        k_pages = T.match_buffer(var_k, (layers, num_pages, kv_heads, dim, page_size), kv_dtype)
        v_pages = T.match_buffer(var_v, (layers, num_pages, kv_heads, page_size, dim), kv_dtype)
        q = T.match_buffer(var_q, (n, heads, dim), dtype)
        for token_head in T.parallel(n * (heads + kv_heads)):
            token = token_head // (heads + kv_heads)
            head = token_head % (heads + kv_heads)
            if head < heads:
                for d in T.vectorized(dim):
                    q[token, head, d] = qkv[token, head, d]
            else:
                position = T.Cast("int64", token_pos[token])
                page = T.Cast("int64", page_table[T.Cast("int64", token_seq[token]), position // page_size])
                slot = position % page_size
                for d in range(dim):
                    k_pages[layer, page, head - heads, d, slot] = T.Cast(kv_dtype, qkv[token, head, d])
                for d in T.vectorized(dim):
                    v_pages[layer, page, head - heads, slot, d] = T.Cast(kv_dtype, qkv[token, head + kv_heads, d])

    return kv_append


@cache
def append_rotated(shape: AttentionShape) -> PrimFunc:
    """As ``append_raw``, but queries and keys are rotated by their position first.

    cos, sin: float32 [n, R/2]. Elements d and d + R/2 of a head are one pair; the D - R last ones are not rotated.
    """
    layers, heads, kv_heads, dim = shape.layers, shape.heads, shape.kv_heads, shape.head_dim
    dtype, kv_dtype, page_size = shape.dtype, shape.kv_dtype, PAGE_SIZE
    half = shape.rotary_dim // 2

    @T.prim_func(private=True)
    def kv_append(
        var_qkv: T.handle,
        var_cos: T.handle,
        var_sin: T.handle,
        var_table: T.handle,
        var_seq: T.handle,
        var_pos: T.handle,
        var_k: T.handle,
        var_v: T.handle,
        var_q: T.handle,
        layer: T.int64,
    ):
        T.func_attr({"tir.noalias": True, "tir.is_scheduled": True, "num_outputs": 1})
        n = T.int64()
        num_seqs = T.int64()
        max_pages = T.int64()
        num_pages = T.int64()
        qkv = T.match_buffer(var_qkv, (n, heads + 2 * kv_heads, dim), dtype)
        cos = T.match_buffer(var_cos, (n, half), "float32")
        sin = T.match_buffer(var_sin, (n, half), "float32")
        page_table = T.match_buffer(var_table, (num_seqs, max_pages), "int32")
        token_seq = T.match_buffer(var_seq, (n,), "int32")
        token_pos = T.match_buffer(var_pos, (n,), "int32")
        k_pages = T.match_buffer(var_k, (layers, num_pages, kv_heads, dim, page_size), kv_dtype)
        v_pages = T.match_buffer(var_v, (layers, num_pages, kv_heads, page_size, dim), kv_dtype)
        q = T.match_buffer(var_q, (n, heads, dim), dtype)
        for token_head in T.parallel(n * (heads + kv_heads)):
            token = token_head // (heads + kv_heads)
            head = token_head % (heads + kv_heads)
            rotated = T.decl_buffer((dim,), "float32", scope="local")
            for d in T.vectorized(dim):
                rotated[d] = T.Cast("float32", qkv[token, head, d])
            for d in T.vectorized(half):
                rotated[d] = rotated[d] * cos[token, d] - T.Cast("float32", qkv[token, head, half + d]) * sin[token, d]
            for d in T.vectorized(half):
                rotated[half + d] = (
                    rotated[half + d] * cos[token, d] + T.Cast("float32", qkv[token, head, d]) * sin[token, d]
                )
            if head < heads:
                for d in T.vectorized(dim):
                    q[token, head, d] = T.Cast(dtype, rotated[d])
            else:
                position = T.Cast("int64", token_pos[token])
                page = T.Cast("int64", page_table[T.Cast("int64", token_seq[token]), position // page_size])
                slot = position % page_size
                for d in range(dim):
                    k_pages[layer, page, head - heads, d, slot] = T.Cast(kv_dtype, rotated[d])
                for d in T.vectorized(dim):
                    v_pages[layer, page, head - heads, slot, d] = T.Cast(kv_dtype, qkv[token, head + kv_heads, d])

    return kv_append


@cache
def paged_attention(shape: AttentionShape) -> PrimFunc:
    """out [n, H, D]: a token attends to its sequence up to its own position, or the last ``sliding_window`` of these.

    Page by page with a running maximum and sum (Dao et al. 2022), so memory does not grow with the context; float32.
    Heads that share keys and values go together, so that these are loaded and converted once.
    """
    layers, heads, kv_heads, dim = shape.layers, shape.heads, shape.kv_heads, shape.head_dim
    dtype, kv_dtype, page_size = shape.dtype, shape.kv_dtype, PAGE_SIZE
    group, scale, window, masked = heads // kv_heads, shape.scale, shape.sliding_window, MASKED
    together = _heads_together(heads, group, dim)
    teams = heads // together
    chains = CHAINS if dim % CHAINS == 0 else 1

    @T.prim_func(private=True)
    def paged_attention(
        var_q: T.handle,
        var_k: T.handle,
        var_v: T.handle,
        var_table: T.handle,
        var_seq: T.handle,
        var_pos: T.handle,
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
        for token_team in T.parallel(n * teams):
            token = token_team // teams
            head = token_team % teams * together
            sequence = T.Cast("int64", token_seq[token])
            position = T.Cast("int64", token_pos[token])
            first = T.max(position - (window - 1), 0) // page_size if window else T.int64(0)
            products = T.decl_buffer((together, chains, page_size), "float32", scope="local")
            scores = T.decl_buffer((together, page_size), "float32", scope="local")
            folded = T.decl_buffer((page_size // 2,), "float32", scope="local")
            greatest = T.decl_buffer((together,), "float32", scope="local")
            total = T.decl_buffer((together,), "float32", scope="local")
            acc = T.decl_buffer((together, dim), "float32", scope="local")
            for h in T.unroll(together):
                greatest[h] = T.float32(masked)
                total[h] = T.float32(0)
                for d in T.vectorized(dim):
                    acc[h, d] = T.float32(0)
            for i in range(position // page_size - first + 1):
                page = T.Cast("int64", page_table[sequence, first + i])
                last = position - (first + i) * page_size
                for h in T.unroll(together):
                    for c in T.unroll(chains):
                        for t in T.vectorized(page_size):
                            products[h, c, t] = T.float32(0)
                for step in range(dim // chains):
                    for c in T.unroll(chains):
                        for h in T.unroll(together):
                            for t in T.vectorized(page_size):
                                products[h, c, t] = products[h, c, t] + (
                                    T.Cast("float32", q[token, head + h, step * chains + c])
                                    * T.Cast("float32", k_pages[layer, page, head // group, step * chains + c, t])
                                )
                for h in T.unroll(together):
                    for t in T.vectorized(page_size):
                        scores[h, t] = products[h, 0, t]
                    for c in T.unroll(chains - 1):
                        for t in T.vectorized(page_size):
                            scores[h, t] = scores[h, t] + products[h, c + 1, t]
                    for t in T.vectorized(page_size):
                        scores[h, t] = T.Select(
                            (t <= last and t > last - window) if window else t <= last,
                            scores[h, t] * T.float32(scale),
                            T.float32(masked),
                        )
                    before = greatest[h]
                    for t in T.vectorized(8):
                        folded[t] = T.max(scores[h, t], scores[h, t + 8])
                    for t in T.vectorized(4):
                        folded[t] = T.max(folded[t], folded[t + 4])
                    greatest[h] = T.max(greatest[h], T.max(T.max(folded[0], folded[1]), T.max(folded[2], folded[3])))
                    shrink = T.exp(before - greatest[h])
                    for t in T.vectorized(page_size):
                        scores[h, t] = T.exp(scores[h, t] - greatest[h])
                    for t in T.vectorized(8):
                        folded[t] = scores[h, t] + scores[h, t + 8]
                    for t in T.vectorized(4):
                        folded[t] = folded[t] + folded[t + 4]
                    total[h] = total[h] * shrink + ((folded[0] + folded[1]) + (folded[2] + folded[3]))
                    for d in T.vectorized(dim):
                        acc[h, d] = acc[h, d] * shrink
                for t in range(T.min(page_size, last + 1)):
                    for h in T.unroll(together):
                        for d in T.vectorized(dim):
                            acc[h, d] = acc[h, d] + scores[h, t] * T.Cast(
                                "float32", v_pages[layer, page, head // group, t, d]
                            )
            for h in T.unroll(together):
                for d in T.vectorized(dim):
                    out[token, head + h, d] = T.Cast(dtype, acc[h, d] / total[h])

    return paged_attention


def _heads_together(heads: int, group: int, dim: int) -> int:
    """How many of the ``group`` heads that share keys and values one thread computes.

    As many as the registers hold results of, while there is work for two threads.
    """
    few_enough = (h for h in range(group, 1, -1) if h * dim <= REGISTERS * SIMD_WIDTH and h < heads)
    return next((h for h in few_enough if group % h == 0), 1)
