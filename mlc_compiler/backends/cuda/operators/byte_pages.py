"""TVMScript macros of tiles on tensor cores over pages of bytes; ``k`` is ``mma_tiles.MmaTiles``.

Each thread converts the elements that it has copied itself, before the barrier after which other threads read them.
"""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....script import T
from .warps import instruction, widen

VECTOR = 8  # elements of 16 bits in 16 bytes


@T.macro
def copy_scales(k, g, parity, thread):
    """Start to copy the scales of a block's keys and values, whose pages are ``pages[parity]``."""
    p = k.p
    slot = thread * VECTOR
    if slot < k.block:
        page = k.pages[parity, slot // k.copied]
        instruction("cp_async.16.f16", k.scales[0, slot], p.more["k_scales"][p.layer, page, g, slot % p.page])
        instruction("cp_async.16.f16", k.scales[1, slot], p.more["v_scales"][p.layer, page, g, slot % p.page])


@T.macro
def convert_keys(k, thread):
    vectors = k.block // k.copied
    for i in T.unroll(T.ceildiv(k.p.key * vectors, k.threads)):
        d = i * (k.threads // vectors) + thread // vectors
        if d < k.p.key:
            slot = thread % vectors * k.copied
            load_packed(k, k.packed_keys, d, slot)
            store_halves(k, k.keys, d, slot)


@T.macro
def convert_values(k, start, thread):
    vectors = k.p.value // k.copied
    for i in T.unroll(T.ceildiv(k.block * vectors, k.threads)):
        at = i * k.threads + thread
        row = at // vectors
        if row < k.block:
            e = at % vectors * k.copied
            load_packed(k, k.packed_values, row, e)
            if k.p.scaled:
                scale = k.value_scale(row, start)
                for x in T.unroll(k.copied):
                    k.wide[x] = k.wide[x] * scale
            store_halves(k, k.values, row, e)


@T.macro
def load_packed(k, packed, row, column):
    for x in T.vectorized(k.copied):
        k.codes[0, x] = packed[row, column + x]
    widen(k.widen, k.wide, k.codes, 0, k.copied)


@T.macro
def store_halves(k, target, row, column):
    for x in T.unroll(k.copied // 2):
        instruction(k.convert, k.halves[2 * x], k.wide[2 * x])
    for part in T.unroll(k.copied // VECTOR):
        for x in T.vectorized(VECTOR):
            target[row, column + part * VECTOR + x] = k.halves[part * VECTOR + x]


@T.macro
def scale_scores(k, thread):
    for n in T.unroll(k.score_tiles):
        for x in T.unroll(4):
            k.score[n, x] = k.score[n, x] * k.key_scale(n * 8 + k.column(thread, x))
