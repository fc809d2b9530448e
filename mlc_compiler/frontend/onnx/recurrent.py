"""ONNX's recurrent layers, unrolled over the steps: https://onnx.ai/onnx/operators/onnx__LSTM.html."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...relax import ops
from ...relax.builder import BlockBuilder
from ...relax.nodes import Expr
from .. import blocks
from ..values import constant_size, dtype_of, rank, size_of
from .arrays import Row

Step = Callable[[Expr, list[Expr]], list[Expr]]
"""Computes the new states, [N, H] each, the hidden state first, from a step's products with the inputs, [N, G * H] for
G gates, and the old states."""
Cell = Callable[[Expr, Expr, Sequence[Row], bool], Step]
"""Makes a step. Arguments: the weight [G * H, H] and bias [G * H] of the hidden state, the activations, and GRU's
``linear_before_reset``."""
ACTIVATIONS: dict[str, Row] = {"relu": ops.relu, "sigmoid": ops.sigmoid, "tanh": ops.tanh}


def _bound(x: Expr) -> Expr:
    """Bind a value that is used more than once; the builder binds other expressions at each use."""
    return BlockBuilder.current().emit(x)


def _split(x: Expr, parts: int | tuple[int, ...], axis: int = 0) -> Sequence[Expr]:
    builder = BlockBuilder.current()
    return builder.split_tuple(builder.emit(ops.split(x, indices_or_sections=parts, axis=axis)))


def unstacked(x: Expr, axis: int = 0) -> list[Expr]:
    """``x[0], x[1], ...`` along an axis of constant size."""
    count = constant_size(x, axis)
    parts = [x] if count == 1 else _split(x, count, axis)
    return [_bound(ops.squeeze(part, axis=axis)) for part in parts]


def _rnn(weight: Expr, bias: Expr, activations: Sequence[Row], _: bool) -> Step:
    return lambda x, states: [_bound(activations[0](ops.add(x, ops.linear(states[0], weight, bias))))]


def _lstm(weight: Expr, bias: Expr, activations: Sequence[Row], _: bool) -> Step:
    """Gates in the order input, output, forget, cell (Hochreiter & Schmidhuber 1997)."""
    f, g, h = activations

    def step(x: Expr, states: list[Expr]) -> list[Expr]:
        hidden, cell = states
        enter, leave, forget, new = _split(ops.add(x, ops.linear(hidden, weight, bias)), 4, axis=1)
        cell = _bound(ops.add(ops.multiply(f(forget), cell), ops.multiply(f(enter), g(new))))
        return [_bound(ops.multiply(f(leave), h(cell))), cell]

    return step


def _gru(weight: Expr, bias: Expr, activations: Sequence[Row], linear_before_reset: bool) -> Step:
    """Gates in the order update, reset, hidden (Cho et al. 2014)."""
    f, g = activations
    size = constant_size(weight, 1)
    (gates_weight, new_weight), (gates_bias, new_bias) = (_split(v, (2 * size,)) for v in (weight, bias))

    def step(x: Expr, states: list[Expr]) -> list[Expr]:
        (state,) = states
        gates, inputs = _split(x, (2 * size,), axis=1)
        update, reset = _split(f(ops.add(gates, ops.linear(state, gates_weight, gates_bias))), 2, axis=1)
        if linear_before_reset:
            inner = ops.multiply(reset, ops.linear(state, new_weight, new_bias))
        else:
            inner = ops.linear(ops.multiply(reset, state), new_weight, new_bias)
        new = g(ops.add(inputs, inner))
        return [_bound(ops.add(ops.multiply(ops.subtract(1.0, update), new), ops.multiply(update, state)))]

    return step


def _layer(cell: Cell, gates: int, defaults: Sequence[str], num_states: int = 1) -> Row:
    """Row of a layer. Results: the hidden states of all steps [T, D, N, H], and each last state [D, N, H]."""

    def row(
        x: Expr,
        weight: Expr,
        recurrent: Expr,
        bias: Expr | None = None,
        lengths: Expr | None = None,
        *given: Expr | None,
        hidden_size: int,
        direction: bytes = b"forward",
        activations: Sequence[bytes] = (),
        layout: int = 0,
        linear_before_reset: int = 0,
        clip: float | None = None,
        input_forget: int = 0,
    ) -> list[Expr]:
        peepholes = given[num_states] if len(given) > num_states else None
        _require_none(P=peepholes, clip=clip, input_forget=input_forget or None)
        backwards = {b"forward": (False,), b"reverse": (True,), b"bidirectional": (False, True)}[direction]
        count, names = len(backwards), [a.decode().lower() for a in activations] or [*defaults] * len(backwards)
        x = _exchanged(x) if layout else x
        zeros = blocks.filled((count, size_of(x, 1), hidden_size), 0, dtype_of(x))
        first = [zeros if s is None else _exchanged(s) if layout else s for s in (*given, None, None)[:num_states]]
        bias = blocks.filled((count, 2 * gates * hidden_size), 0, dtype_of(x)) if bias is None else bias
        sides = zip(*map(unstacked, (weight, recurrent, bias, *first)), strict=True)
        results = []
        for backward, (w, r, b, *states) in zip(backwards, sides, strict=True):
            used, names = names[: len(defaults)], names[len(defaults) :]
            of_inputs, of_state = _split(b, 2)
            step = cell(r, of_state, _activations(used), bool(linear_before_reset))
            results.append(_unrolled(step, _bound(ops.linear(x, w, of_inputs)), states, backward, lengths))
        outputs, *last = (ops.stack(parts, axis=0) for parts in zip(*results, strict=True))
        if layout:
            return [ops.permute_dims(outputs, axes=(2, 1, 0, 3)), *map(_exchanged, last)]
        return [_exchanged(outputs), *last]

    return row


def _require_none(**given: object) -> None:
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"got {name}; expected none")


def _activations(names: Sequence[str]) -> list[Row]:
    if unknown := set(names) - set(ACTIVATIONS):
        raise ValueError(f"got activation {min(unknown)}; expected one of {', '.join(ACTIVATIONS)}")
    return [ACTIVATIONS[name] for name in names]


def _exchanged(x: Expr) -> Expr:
    """Exchange the first two axes."""
    return ops.permute_dims(x, axes=(1, 0, *range(2, rank(x))))


def _unrolled(step: Step, inputs: Expr, states: list[Expr], backward: bool, lengths: Expr | None) -> list[Expr]:
    """The hidden states of all steps [T, N, H], and the last states. inputs: [T, N, G * H].

    lengths: integers [N]; the steps of a sequence beyond its length keep its states, and their hidden state is 0.
    """
    hidden = []
    for t, x in list(enumerate(unstacked(inputs)))[:: -1 if backward else 1]:
        made = step(x, states)
        if lengths is None:
            states = made
            hidden.append(states[0])
            continue
        is_inside = _bound(ops.expand_dims(ops.greater(lengths, t), axis=1))
        states = [_bound(ops.where(is_inside, new, old)) for new, old in zip(made, states, strict=True)]
        hidden.append(ops.where(is_inside, states[0], 0.0))
    return [ops.stack(hidden[:: -1 if backward else 1], axis=0), *states]


RECURRENT: dict[str, Row] = {
    "GRU": _layer(_gru, 3, ("sigmoid", "tanh")),
    "LSTM": _layer(_lstm, 4, ("sigmoid", "tanh", "tanh"), num_states=2),
    "RNN": _layer(_rnn, 1, ("tanh",)),
}
