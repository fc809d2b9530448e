"""TVMScript macros of top-p sampling; ``k`` is ``sampling._Draw``."""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....ir.expr import maximum
from ....script import T
from ..machine import WARP
from .warps import add, instruction, load_vector, reduce_lanes


@T.macro
def draw(k, row, warp, lane):
    row_max(k, row, warp, lane)
    k.low[0] = T.float32(0)
    k.high[0] = k.sums[0]
    for _ in range(T.Select(k.top_p[row] < T.float32(1), T.int64(k.passes), T.int64(0))):
        sum_kept(k, row, warp, lane)
        narrow(k, row)
    choose(k, row, warp, lane)


@T.macro
def load_part(k, row, warp, lane, i):
    """Load the lane's elements of part i of the warp's segment; 0 after the end of the row."""
    at = warp * k.segment + (i * WARP + lane) * k.vector
    if at < k.vocabulary:
        load_vector(k.values, 0, k.probs[row, at], k.vector)
    else:
        for x in T.unroll(k.vector):
            k.values[0, x] = T.float32(0)


@T.macro
def reduce_block(k, count, combine, warp, lane):
    """Combine ``sums[0:count]`` of all threads; every thread gets the results, in the same order of additions."""
    reduce_lanes(k.sums, count, k.other, combine, 1, WARP)
    if lane < 1:
        for s in T.unroll(count):
            k.parts[s, warp] = k.sums[s]
    T.tvm_storage_sync("shared")
    for s in T.unroll(count):
        k.sums[s] = k.parts[s, lane]
    reduce_lanes(k.sums, count, k.other, combine, 1, WARP)
    T.tvm_storage_sync("shared")


@T.macro
def row_max(k, row, warp, lane):
    k.sums[0] = T.float32(0)
    for i in range(k.loads):
        load_part(k, row, warp, lane, i)
        for x in T.unroll(k.vector):
            k.sums[0] = T.max(k.sums[0], k.values[0, x])
    reduce_block(k, 1, maximum, warp, lane)


@T.macro
def sum_kept(k, row, warp, lane):
    """``sums[s]``: the sum of the probabilities from threshold s on."""
    for s in T.unroll(k.thresholds):
        k.sums[s] = T.float32(0)
    for i in range(k.loads):
        load_part(k, row, warp, lane, i)
        for x in T.unroll(k.vector):
            k.sums[0] = k.sums[0] + k.kept(k.values[0, x], k.threshold(0))
            k.sums[1] = k.sums[1] + k.kept(k.values[0, x], k.threshold(1))
            k.sums[2] = k.sums[2] + k.kept(k.values[0, x], k.threshold(2))
    reduce_block(k, k.thresholds, add, warp, lane)


@T.macro
def narrow(k, row):
    """Two steps of bisection: by the middle threshold, then by the threshold of the remaining half."""
    first = k.threshold(0)
    middle = k.threshold(1)
    last = k.threshold(2)
    if k.sums[1] >= k.top_p[row]:
        k.low[0] = T.Select(k.sums[2] >= k.top_p[row], last, middle)
        k.high[0] = T.Select(k.sums[2] >= k.top_p[row], k.high[0], last)
    else:
        k.low[0] = T.Select(k.sums[0] >= k.top_p[row], first, k.low[0])
        k.high[0] = T.Select(k.sums[0] >= k.top_p[row], middle, first)


@T.macro
def choose(k, row, warp, lane):
    """Store the last kept token before which the sum of kept tokens is at most ``uniform`` times that of all."""
    k.sums[0] = T.float32(0)
    for i in range(k.loads):
        load_part(k, row, warp, lane, i)
        for x in T.unroll(k.vector):
            k.sums[0] = k.sums[0] + k.kept(k.values[0, x], k.low[0])
    reduce_lanes(k.sums, 1, k.other, add, 1, WARP)
    if lane < 1:
        k.parts[0, warp] = k.sums[0]
    T.tvm_storage_sync("shared")
    k.sums[1] = T.float32(0)
    for w in range(k.warps):
        k.sums[1] = k.sums[1] + k.parts[0, w]
    target = k.uniform[row] * k.sums[1]
    k.running[0] = T.float32(0)
    k.running[1] = T.float32(0)
    k.chosen[0] = T.int32(0)
    for w in range(k.warps):
        if k.parts[0, w] > T.float32(0) and k.running[0] <= target:
            k.chosen[0] = T.Cast("int32", w)
            k.running[1] = k.running[0]
        k.running[0] = k.running[0] + k.parts[0, w]
    segment = T.Cast("int64", k.chosen[0])
    if warp < 1:
        choose_in_segment(k, row, segment, target, lane)


@T.macro
def choose_in_segment(k, row, segment, target, lane):
    """Like ``choose``, in one segment, by one warp; ``running[1]``: the sum of the segments before it."""
    k.chosen[0] = T.int32(0)
    for i in range(k.loads):
        load_part(k, row, segment, lane, i)
        k.sums[0] = T.float32(0)
        for x in T.unroll(k.vector):
            k.sums[0] = k.sums[0] + k.kept(k.values[0, x], k.low[0])
        prefix_sums(k.sums, k.other, lane, 1)
        instruction("shfl.up.f32", k.other[0], k.sums[0], T.int32(1))
        k.running[0] = k.running[1] + T.Select(lane > 0, k.other[0], T.float32(0))
        for x in T.unroll(k.vector):
            p = k.kept(k.values[0, x], k.low[0])
            if p > T.float32(0) and k.running[0] <= target:
                at = segment * k.segment + (i * WARP + lane) * k.vector + x
                k.chosen[0] = T.Cast("int32", at)
            k.running[0] = k.running[0] + p
        instruction("shfl.idx.f32", k.other[0], k.sums[0], T.int32(WARP - 1))
        k.running[1] = k.running[1] + k.other[0]
    instruction("redux.max.s32", k.last[0], k.chosen[0])
    if lane < 1:
        k.token[row] = k.last[0]


@T.macro
def prefix_sums(sums, other, lane, step):
    """Inclusive prefix sums of ``sums[0]`` over the lanes; the previous steps have added ``step`` lanes."""
    if step < WARP:
        instruction("shfl.up.f32", other[0], sums[0], T.int32(step))
        sums[0] = sums[0] + T.Select(lane >= step, other[0], T.float32(0))
        prefix_sums(sums, other, lane, 2 * step)
