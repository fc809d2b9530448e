"""TVMScript macros of the filters of sampling; ``k`` is ``filters._Filter``."""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....relax.ops.sampling_filters import ABOVE_ONE, BITS, FILTERS, TYPICAL_P, typicality
from ....script import T
from .lanes import add, halve
from .sampling_loops import row_max


@T.macro
def filter_rows(k):
    for row in T.parallel(k.rows):
        fold = T.decl_buffer((k.lanes,), "float32", scope="local")
        logs = T.decl_buffer((k.lanes,), "float32", scope="local")
        top = T.decl_buffer((1,), "float32", scope="local")
        low = T.decl_buffer((1,), "int32", scope="local")
        row_max(k, row, fold)
        top[0] = fold[0]
        for i in range(k.blocks):
            for lane in T.vectorized(k.lanes):
                k.kept[row, i * k.lanes + lane] = k.probs[row, i * k.lanes + lane]
        for i in range(k.tail):
            k.kept[row, k.blocks * k.lanes + i] = k.probs[row, k.blocks * k.lanes + i]
        for kind in range(FILTERS):
            if k.is_active(kind, row):
                measure(k, row, kind, fold, logs)
                search(k, row, kind, k.wanted(kind, row, fold[0]), low, logs)
                keep(k, row, k.threshold(kind, row, low[0], top[0]))
        finish(k, row)


@T.macro
def measure(k, row, kind, fold, logs):
    """``fold[0]`` = the remaining probability mass; for ``TYPICAL_P``, also the keys of the remaining tokens."""
    for lane in T.vectorized(k.lanes):
        fold[lane] = T.float32(0)
        logs[lane] = T.float32(0)
    for i in range(k.blocks):
        for lane in T.vectorized(k.lanes):
            fold[lane] = fold[lane] + k.left(row, i * k.lanes + lane)
    for i in range(k.tail):
        fold[i] = fold[i] + k.left(row, k.blocks * k.lanes + i)
    halve(fold, k.lanes, add)
    if kind == TYPICAL_P:
        for i in range(k.blocks):
            for lane in T.vectorized(k.lanes):
                logs[lane] = logs[lane] + k.log_term(row, i * k.lanes + lane)
        for i in range(k.tail):
            logs[i] = logs[i] + k.log_term(row, k.blocks * k.lanes + i)
        halve(logs, k.lanes, add)
        mean = logs[0] / fold[0]
        for i in range(k.blocks):
            for lane in T.vectorized(k.lanes):
                at = i * k.lanes + lane
                k.kept[row, at] = typicality(k.kept[row, at], k.probs[row, at], mean)
        for i in range(k.tail):
            at = k.blocks * k.lanes + i
            k.kept[row, at] = typicality(k.kept[row, at], k.probs[row, at], mean)


@T.macro
def search(k, row, kind, target, low, fold):
    """``low[0]`` = bits of the largest threshold such that keys at or above it have a weight of ``target``, or 0."""
    high = T.decl_buffer((1,), "int32", scope="local")
    bound = T.decl_buffer((1,), "float32", scope="local")
    bound[0] = target
    low[0] = T.int32(0)
    high[0] = T.int32(ABOVE_ONE)
    for _ in range(T.Select(k.is_searched(kind, row), T.int64(BITS), T.int64(0))):
        middle = (low[0] + high[0]) >> T.int32(1)
        threshold = T.reinterpret("float32", middle)
        for lane in T.vectorized(k.lanes):
            fold[lane] = T.float32(0)
        for i in range(k.blocks):
            for lane in T.vectorized(k.lanes):
                fold[lane] = fold[lane] + k.above(kind, row, i * k.lanes + lane, threshold)
        for i in range(k.tail):
            fold[i] = fold[i] + k.above(kind, row, k.blocks * k.lanes + i, threshold)
        halve(fold, k.lanes, add)
        if fold[0] >= bound[0]:
            low[0] = middle
        else:
            high[0] = middle


@T.macro
def keep(k, row, threshold):
    """Set keys below the threshold to 0."""
    bound = T.decl_buffer((1,), "float32", scope="local")
    bound[0] = threshold
    for i in range(k.blocks):
        for lane in T.vectorized(k.lanes):
            k.kept[row, i * k.lanes + lane] = k.key_from(row, i * k.lanes + lane, bound[0])
    for i in range(k.tail):
        k.kept[row, k.blocks * k.lanes + i] = k.key_from(row, k.blocks * k.lanes + i, bound[0])


@T.macro
def finish(k, row):
    """Replace keys by probabilities."""
    for i in range(k.blocks):
        for lane in T.vectorized(k.lanes):
            k.kept[row, i * k.lanes + lane] = k.left(row, i * k.lanes + lane)
    for i in range(k.tail):
        k.kept[row, k.blocks * k.lanes + i] = k.left(row, k.blocks * k.lanes + i)
