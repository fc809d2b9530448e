"""Operators that apply biases and penalties to logits, and sample tokens."""

from __future__ import annotations

from ...ir.expr import INDEX_DTYPE, PrimExpr, Var, binary, const, logical_and
from ...tir import nodes as tir
from ...tir import te
from ...tir.nodes import BufferStore, For, IfThenElse, seq
from .registry import operator

HALVINGS = 24
"""Bisection steps for the threshold of ``sample_top_p``, one per mantissa bit of a float32."""


@operator("nn.penalize", updates=("logits",))
def penalize(
    logits: te.Tensor,
    token_ids: te.Tensor,
    counts: te.Tensor,
    bias: te.Tensor,
    presence: te.Tensor,
    frequency: te.Tensor,
    repetition: te.Tensor,
) -> te.Tensor:
    """Apply biases and repetition penalties to logits; returns ``logits``, written in place.

    logits: float32 [n, V]; token_ids: int32 [n, m], distinct in each row; ids outside of the vocabulary are ignored;
    counts: int32 [n, m], occurrences of the token in the answer, 0 for tokens of the prompt only, negative for tokens
    in neither; bias: float32 [n, m]; others float32 [n]. ``bias`` is added to a logit first. Where the count is not
    negative, the sum is divided by ``repetition`` if it is positive, else multiplied by it (Keskar et al. 2019, as
    transformers applies it); where the count is positive, ``presence + count * frequency`` is subtracted from the
    result. The bias and the subtraction follow OpenAI's API.
    """
    vocabulary = logits.shape[1]
    store_to = logits.buffer

    def change(i: Var, j: Var) -> tir.Stmt:
        token, count = te.cast(token_ids[i, j], INDEX_DTYPE), te.f32(counts[i, j])
        logit = logits[i, token] + bias[i, j]
        factor = te.select(counts[i, j] < 0, const(1.0, "float32"), repetition[i])
        repeated = te.select(logit > 0.0, logit / factor, logit * factor)
        penalty = te.select(counts[i, j] > 0, presence[i] + count * frequency[i], 0.0)
        exists = logical_and(token >= 0, token < vocabulary)
        return IfThenElse(exists, BufferStore(store_to, repeated - penalty, (i, token)))

    inputs = [logits, token_ids, counts, bias, presence, frequency, repetition]
    return te.updated(logits, inputs, te.each(token_ids.shape, "penalize", change))


@operator("nn.softmax_with_temperature")
def softmax_with_temperature(logits: te.Tensor, temperature: te.Tensor) -> te.Tensor:
    """``softmax(logits / temperature)`` of each row; temperature 0 gives 1 at the first maximum and 0 elsewhere.

    logits: float32 [n, V]; temperature: float32 [n]. Returns float32 [n, V].
    """
    n, vocabulary = logits.shape
    k = [te.reduce_axis(vocabulary, f"k{i}") for i in range(3)]
    row_max = te.compute((n,), lambda i: te.max(logits[i, k[0]], axis=k[0]), name="row_max")

    def place(i: Var) -> PrimExpr:
        is_max = logits[i, k[1]] >= row_max[i]
        return te.min(te.select(is_max, te.cast(k[1], "int32"), te.cast(vocabulary - 1, "int32")), axis=k[1])

    first = te.compute((n,), place, name="first")

    warmth = te.compute((n,), lambda i: 1.0 / te.select(temperature[i] > 0.0, temperature[i], 1.0), name="warmth")

    def power(i: Var, j: Var) -> PrimExpr:
        at_zero = te.select(binary("==", te.cast(j, "int32"), first[i]), 1.0, 0.0)
        return te.select(temperature[i] > 0.0, te.exp((logits[i, j] - row_max[i]) * warmth[i]), at_zero)

    powers = te.compute((n, vocabulary), power, name="power")
    row_sum = te.compute((n,), lambda i: te.sum(powers[i, k[2]], axis=k[2]), name="row_sum")
    share = te.compute((n,), lambda i: 1.0 / row_sum[i], name="share")
    return te.compute((n, vocabulary), lambda i, j: powers[i, j] * share[i], name="probability")


@operator("nn.sample_top_p")
def sample_top_p(probs: te.Tensor, top_p: te.Tensor, uniform: te.Tensor) -> te.Tensor:
    """Nucleus sampling (Holtzman et al. 2020): sample a token for each row, int32 [n].

    Samples among the smallest set of most probable tokens whose probabilities sum to at least ``top_p``. probs: float32
    [n, V]; top_p: float32 [n], 1 or more keeps all tokens; uniform: float32 [n] in [0, 1). The set is defined by a
    threshold, found by ``HALVINGS`` bisection steps in [0, max(probs)]. The result is the first token whose cumulative
    probability within the set exceeds ``uniform`` times the sum of the set.
    """
    n, vocabulary = probs.shape
    token = tir.buffer("token", (n,), "int32")
    low, high, mass, threshold, running = (
        te.Cell(x, "float32") for x in ("low", "high", "mass", "threshold", "running")
    )

    def row(i: Var) -> tir.Stmt:
        j, k, m, step = Var("j"), Var("k"), Var("m"), Var("step")
        steps = te.select(top_p[i] < 1.0, const(HALVINGS, INDEX_DTYPE), const(0, INDEX_DTYPE))
        middle = te.select(step < steps, (low.value + high.value) * 0.5, low.value)
        add = IfThenElse(probs[i, k] >= threshold.value, mass.set(mass.value + probs[i, k]))
        halve = seq(
            threshold.set(middle),
            mass.set(0.0),
            For(k, vocabulary, add),
            IfThenElse(mass.value >= top_p[i], low.set(threshold.value), high.set(threshold.value)),
        )
        p = probs[i, m]
        choose = BufferStore(token, te.cast(m, "int32"), (i,))
        draw = seq(IfThenElse(running.value <= uniform[i] * mass.value, choose), running.set(running.value + p))
        return seq(
            high.set(0.0),
            For(j, vocabulary, high.set(te.max(high.value, probs[i, j]))),
            low.set(0.0),
            For(step, steps + 1, halve),
            running.set(0.0),
            BufferStore(token, const(0, "int32"), (i,)),
            For(m, vocabulary, IfThenElse(logical_and(p >= low.value, p > 0.0), draw)),
        )

    cells = [cell.buffer for cell in (low, high, mass, threshold, running)]
    return te.extern([token], [probs, top_p, uniform], te.each((n,), "sample_top_p", row, cells))[0]
