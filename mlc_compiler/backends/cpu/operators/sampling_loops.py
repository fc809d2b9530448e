"""TVMScript macros of top-p sampling; ``k`` is ``sampling._Draw``."""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....ir.expr import maximum
from ....script import T
from .lanes import add, halve


@T.macro
def draw(k):
    for row in T.parallel(k.rows):
        fold = T.decl_buffer((k.lanes,), "float32", scope="local")
        low = T.decl_buffer((1,), "float32", scope="local")
        high = T.decl_buffer((1,), "float32", scope="local")
        row_max(k, row, fold)
        low[0] = T.float32(0)
        high[0] = fold[0]
        steps = T.Select(k.top_p[row] < T.float32(1), T.int64(k.halvings), T.int64(0))
        for step in range(steps + 1):  # bisection of the threshold; the last step sums the kept probabilities
            threshold = T.Select(step < steps, (low[0] + high[0]) * T.float32(0.5), low[0])
            sum_kept(k, row, threshold, fold, T.int64(0), k.blocks, k.tail)
            if fold[0] >= k.top_p[row]:
                low[0] = threshold
            else:
                high[0] = threshold
        choose(k, row, low[0], k.uniform[row] * fold[0], fold)


@T.macro
def row_max(k, row, fold):
    for lane in T.vectorized(k.lanes):
        fold[lane] = T.float32(0)
    for i in range(k.blocks):
        for lane in T.vectorized(k.lanes):
            fold[lane] = T.max(fold[lane], k.probs[row, i * k.lanes + lane])
    for i in range(k.tail):
        fold[i] = T.max(fold[i], k.probs[row, k.blocks * k.lanes + i])
    halve(fold, k.lanes, maximum)


@T.macro
def sum_kept(k, row, threshold, fold, first, vectors, tail):
    """``fold[0]`` = sum of the kept probabilities of ``vectors`` vectors from token ``first``, and of the tail."""
    for lane in T.vectorized(k.lanes):
        fold[lane] = T.float32(0)
    for i in range(vectors):
        for lane in T.vectorized(k.lanes):
            fold[lane] = fold[lane] + k.kept(row, first + i * k.lanes + lane, threshold)
    for i in range(tail):
        fold[i] = fold[i] + k.kept(row, k.blocks * k.lanes + i, threshold)
    halve(fold, k.lanes, add)


@T.macro
def choose(k, row, threshold, target, fold):
    """Store the first token whose inclusive prefix sum exceeds ``target``: find its chunk, then search the chunk."""
    bound = T.decl_buffer((2,), "float32", scope="local")  # threshold, target: ``fold`` and ``low`` are overwritten
    running = T.decl_buffer((2,), "float32", scope="local")  # prefix sums before the current and the chosen chunk
    chosen = T.decl_buffer((1,), "int64", scope="local")
    bound[0] = threshold
    bound[1] = target
    running[0] = T.float32(0)
    running[1] = T.float32(0)
    chosen[0] = T.int64(0)
    for c in range(k.chunks):
        vectors = T.min(T.int64(k.chunk_vectors), k.blocks - c * k.chunk_vectors)
        tail = T.Select(c == k.chunks - 1, T.int64(k.tail), T.int64(0))
        sum_kept(k, row, bound[0], fold, c * k.chunk, vectors, tail)
        if fold[0] > T.float32(0) and running[0] <= bound[1]:
            chosen[0] = c
            running[1] = running[0]
        running[0] = running[0] + fold[0]
    k.token[row] = T.int32(0)
    for i in range(T.min(T.int64(k.chunk), k.vocabulary - chosen[0] * k.chunk)):
        p = k.kept(row, chosen[0] * k.chunk + i, bound[0])
        if p > T.float32(0):
            if running[1] <= bound[1]:
                k.token[row] = T.Cast("int32", chosen[0] * k.chunk + i)
            running[1] = running[1] + p
