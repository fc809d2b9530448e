"""Choosing tokens: softmax with temperature, a draw from the most probable ones. One thread a row, SIMD within it."""

# The bodies are TVMScript, which is read as text; to a type checker they make no sense.
# mypy: ignore-errors

from __future__ import annotations

from ..script import T
from ..tir.nodes import PrimFunc
from . import op
from .tensor import Tensor

LANES = 16
HALVINGS = 24
CHUNK_BLOCKS = 64


def sample(logits: Tensor, temperature: Tensor, top_p: Tensor, uniform: Tensor) -> Tensor:
    """One token for every row: int32 [n].

    logits: float32 [n, V]. temperature: float32 [n], 0 takes the first greatest logit. top_p: float32 [n], the draw is
    among the fewest most probable tokens that hold this share. uniform: float32 [n] in [0, 1), decides the draw.
    """
    n, vocab = logits.shape
    softmax = softmax_with_temperature(int(vocab))
    probs = op.tensor_ir_op(softmax, "softmax_with_temperature", [logits, temperature], (logits.shape, "float32"))
    return op.tensor_ir_op(sample_top_p(int(vocab)), "sample_top_p", [probs, top_p, uniform], ((n,), "int32"))


def softmax_with_temperature(vocab: int) -> PrimFunc:
    """``softmax(logits / temperature)`` of every row; at temperature 0, 1 at the first greatest logit and else 0."""
    lanes, blocks, tail = LANES, vocab // LANES, vocab % LANES
    start = blocks * lanes

    @T.prim_func(private=True)
    def softmax_with_temperature(var_logits: T.handle, var_temperature: T.handle, var_probs: T.handle):
        T.func_attr({"tir.noalias": True, "tir.is_scheduled": True, "num_outputs": 1})
        n = T.int64()
        logits = T.match_buffer(var_logits, (n, vocab), "float32")
        temperature = T.match_buffer(var_temperature, (n,), "float32")
        probs = T.match_buffer(var_probs, (n, vocab), "float32")
        for row in T.parallel(n):
            most = T.decl_buffer((lanes,), "float32", scope="local")
            total = T.decl_buffer((lanes,), "float32", scope="local")
            place = T.decl_buffer((lanes,), "int32", scope="local")
            for t in T.vectorized(lanes):
                most[t] = T.float32(-3e38)
                total[t] = T.float32(0)
                place[t] = T.int32(vocab - 1)
            for i in range(blocks):
                for t in T.vectorized(lanes):
                    most[t] = T.max(most[t], logits[row, i * lanes + t])
            for t in range(tail):
                most[t] = T.max(most[t], logits[row, start + t])
            for t in range(lanes):
                most[0] = T.max(most[0], most[t])
            greatest = most[0]
            if temperature[row] > T.float32(0):
                for i in range(blocks):
                    for t in T.vectorized(lanes):
                        probs[row, i * lanes + t] = T.exp((logits[row, i * lanes + t] - greatest) / temperature[row])
                        total[t] = total[t] + probs[row, i * lanes + t]
                for t in range(tail):
                    probs[row, start + t] = T.exp((logits[row, start + t] - greatest) / temperature[row])
                    total[t] = total[t] + probs[row, start + t]
                for t in range(lanes - 1):
                    total[0] = total[0] + total[t + 1]
                scale = T.float32(1) / total[0]
                for i in range(blocks):
                    for t in T.vectorized(lanes):
                        probs[row, i * lanes + t] = probs[row, i * lanes + t] * scale
                for t in range(tail):
                    probs[row, start + t] = probs[row, start + t] * scale
            else:
                for i in range(blocks):
                    for t in T.vectorized(lanes):
                        place[t] = T.min(
                            place[t],
                            T.Select(
                                logits[row, i * lanes + t] == greatest,
                                T.Cast("int32", i * lanes + t),
                                T.int32(vocab - 1),
                            ),
                        )
                        probs[row, i * lanes + t] = T.float32(0)
                for t in range(tail):
                    if logits[row, start + t] == greatest:
                        place[t] = T.min(place[t], T.Cast("int32", start + t))
                    probs[row, start + t] = T.float32(0)
                for t in range(lanes):
                    place[0] = T.min(place[0], place[t])
                probs[row, T.Cast("int64", place[0])] = T.float32(1)

    return softmax_with_temperature


def sample_top_p(vocab: int) -> PrimFunc:
    """The token where the running sum of the kept probabilities passes ``uniform`` times their whole.

    Kept are the probabilities from a threshold on, found by halving, without sorting. The draw looks for the chunk
    first, then for the token in it.
    """
    lanes, blocks, tail = LANES, vocab // LANES, vocab % LANES
    start, halvings = blocks * lanes, HALVINGS
    chunk_blocks, chunk = CHUNK_BLOCKS, CHUNK_BLOCKS * LANES
    chunks = -(-vocab // chunk)

    @T.prim_func(private=True)
    def sample_top_p(var_probs: T.handle, var_top_p: T.handle, var_uniform: T.handle, var_token: T.handle):
        T.func_attr({"tir.noalias": True, "tir.is_scheduled": True, "num_outputs": 1})
        n = T.int64()
        probs = T.match_buffer(var_probs, (n, vocab), "float32")
        top_p = T.match_buffer(var_top_p, (n,), "float32")
        uniform = T.match_buffer(var_uniform, (n,), "float32")
        token = T.match_buffer(var_token, (n,), "int32")
        for row in T.parallel(n):
            most = T.decl_buffer((lanes,), "float32", scope="local")
            mass = T.decl_buffer((lanes,), "float32", scope="local")
            low = T.decl_buffer((1,), "float32", scope="local")
            high = T.decl_buffer((1,), "float32", scope="local")
            running = T.decl_buffer((1,), "float32", scope="local")
            before = T.decl_buffer((1,), "float32", scope="local")
            chosen = T.decl_buffer((1,), "int64", scope="local")
            for t in T.vectorized(lanes):
                most[t] = T.float32(0)
            for i in range(blocks):
                for t in T.vectorized(lanes):
                    most[t] = T.max(most[t], probs[row, i * lanes + t])
            for t in range(tail):
                most[t] = T.max(most[t], probs[row, start + t])
            for t in range(lanes):
                most[0] = T.max(most[0], most[t])
            low[0] = T.float32(0)
            high[0] = most[0]
            steps = T.Select(top_p[row] < T.float32(1), T.int64(halvings), T.int64(0))
            for step in range(steps + 1):
                threshold = T.Select(step < steps, (low[0] + high[0]) * T.float32(0.5), low[0])
                for t in T.vectorized(lanes):
                    mass[t] = T.float32(0)
                for i in range(blocks):
                    for t in T.vectorized(lanes):
                        mass[t] = mass[t] + T.Select(
                            probs[row, i * lanes + t] >= threshold, probs[row, i * lanes + t], T.float32(0)
                        )
                for t in range(tail):
                    if probs[row, start + t] >= threshold:
                        mass[t] = mass[t] + probs[row, start + t]
                for t in range(lanes - 1):
                    mass[0] = mass[0] + mass[t + 1]
                if mass[0] >= top_p[row]:
                    low[0] = threshold
                else:
                    high[0] = threshold
            target = uniform[row] * mass[0]
            running[0] = T.float32(0)
            before[0] = T.float32(0)
            chosen[0] = T.int64(0)
            for c in range(chunks):
                for t in T.vectorized(lanes):
                    mass[t] = T.float32(0)
                for i in range(T.min(chunk_blocks, blocks - c * chunk_blocks)):
                    for t in T.vectorized(lanes):
                        mass[t] = mass[t] + T.Select(
                            probs[row, c * chunk + i * lanes + t] >= low[0],
                            probs[row, c * chunk + i * lanes + t],
                            T.float32(0),
                        )
                for t in range(T.Select(c == chunks - 1, T.int64(tail), T.int64(0))):
                    if probs[row, start + t] >= low[0]:
                        mass[t] = mass[t] + probs[row, start + t]
                for t in range(lanes - 1):
                    mass[0] = mass[0] + mass[t + 1]
                if mass[0] > T.float32(0) and running[0] <= target:
                    chosen[0] = c
                    before[0] = running[0]
                running[0] = running[0] + mass[0]
            token[row] = T.int32(0)
            for j in range(T.min(chunk, vocab - chosen[0] * chunk)):
                p = probs[row, chosen[0] * chunk + j]
                if p >= low[0] and p > T.float32(0):
                    if before[0] <= target:
                        token[row] = T.Cast("int32", chosen[0] * chunk + j)
                    before[0] = before[0] + p

    return sample_top_p
