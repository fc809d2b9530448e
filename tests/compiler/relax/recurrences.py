"""Recurrent operators in numpy and float64, and their operands for tokens of several sequences."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

SLOTS = np.array([2, -1, 0], "int32")
TOKEN_SEQ = np.array([0, 0, 2, 0, 2, 1, 0, 7], "int32")
TOKEN_POS = np.array([4, 5, 0, 6, 1, 3, -1, 0], "int32")
"""Tokens of sequences 0 and 2, mixed; one of a sequence without a slot, padding, and one of an unknown sequence."""
TOKENS = (SLOTS, TOKEN_SEQ, TOKEN_POS)


def steps(num_slots: int, slots: np.ndarray, token_seq: np.ndarray, token_pos: np.ndarray) -> Iterator[tuple[int, int]]:
    """The tokens that change a state, with their slots."""
    for t, (s, position) in enumerate(zip(token_seq, token_pos, strict=True)):
        if position >= 0 and 0 <= s < len(slots) and 0 <= slots[s] < num_slots:
            yield t, int(slots[s])


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def causal_conv(
    state: np.ndarray,
    x: np.ndarray,
    weight: np.ndarray,
    slots: np.ndarray,
    token_seq: np.ndarray,
    token_pos: np.ndarray,
    layer: int,
    bias: np.ndarray,
    first: int,
) -> tuple[np.ndarray, np.ndarray]:
    """The operator ``recurrent.causal_conv`` with SiLU."""
    channels = weight.shape[1]
    state, y = state.copy(), np.zeros((len(x), channels), "float32")
    for t, slot in steps(len(state), slots, token_seq, token_pos):
        window = np.concatenate([state[slot, layer], x[t, None, first : first + channels]])
        y[t] = silu(bias + (window.astype("float64") * weight).sum(0))
        state[slot, layer] = window[1:]
    return state, y


def gated_delta_rule(
    state: np.ndarray,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    decay: np.ndarray,
    beta: np.ndarray,
    slots: np.ndarray,
    token_seq: np.ndarray,
    token_pos: np.ndarray,
    layer: int,
) -> tuple[np.ndarray, np.ndarray]:
    """The operator ``recurrent.gated_delta_rule``."""
    state, y, group = state.astype("float64"), np.zeros_like(v), v.shape[1] // k.shape[1]
    for t, slot in steps(len(state), slots, token_seq, token_pos):
        for h, s in enumerate(state[slot, layer]):
            key = k[t, h // group]
            s *= decay[t, h, ..., None]
            s += np.outer(key, beta[t, h] * (v[t, h] - key @ s))
            y[t, h] = q[t, h // group] @ s
    return state.astype("float32"), y


def rwkv7(
    state: np.ndarray,
    r: np.ndarray,
    decay: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    slots: np.ndarray,
    token_seq: np.ndarray,
    token_pos: np.ndarray,
    layer: int,
) -> tuple[np.ndarray, np.ndarray]:
    """The operator ``recurrent.rwkv7``."""
    state, y = state.astype("float64"), np.zeros_like(v)
    for t, slot in steps(len(state), slots, token_seq, token_pos):
        for h, s in enumerate(state[slot, layer]):
            s[:] = np.diag(decay[t, h]) @ s + np.outer(b[t, h], a[t, h] @ s) + np.outer(k[t, h], v[t, h])
            y[t, h] = r[t, h] @ s
    return state.astype("float32"), y


def wkv(
    state: np.ndarray,
    r: np.ndarray,
    decay: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    bonus: np.ndarray,
    slots: np.ndarray,
    token_seq: np.ndarray,
    token_pos: np.ndarray,
    layer: int,
) -> tuple[np.ndarray, np.ndarray]:
    """The operator ``recurrent.wkv``."""
    state, y, decay = state.astype("float64"), np.zeros_like(v), np.broadcast_to(decay, r.shape)
    for t, slot in steps(len(state), slots, token_seq, token_pos):
        for h, s in enumerate(state[slot, layer]):
            added = np.outer(k[t, h], v[t, h])
            y[t, h] = r[t, h] @ (s + np.diag(bonus[h]) @ added)
            s[:] = np.diag(decay[t, h]) @ s + added
    return state.astype("float32"), y


def token_shift(
    state: np.ndarray, x: np.ndarray, slots: np.ndarray, token_seq: np.ndarray, token_pos: np.ndarray, layer: int
) -> tuple[np.ndarray, np.ndarray]:
    """The operator ``recurrent.token_shift``."""
    state, y = state.copy(), np.zeros_like(x)
    for t, slot in steps(len(state), slots, token_seq, token_pos):
        y[t], state[slot, layer] = state[slot, layer], x[t]
    return state, y


def ssd(
    state: np.ndarray,
    xbc: np.ndarray,
    dt: np.ndarray,
    dt_bias: np.ndarray,
    a: np.ndarray,
    d: np.ndarray,
    slots: np.ndarray,
    token_seq: np.ndarray,
    token_pos: np.ndarray,
    layer: int,
    *,
    groups: int,
    dt_first: int,
    dt_limits: tuple[float, float],
) -> tuple[np.ndarray, np.ndarray]:
    """The operator ``recurrent.ssd``."""
    heads, rows, size = state.shape[2:]
    state, y = state.copy(), np.zeros((len(xbc), heads, size), "float32")
    time_steps = np.log1p(np.exp(dt[:, dt_first : dt_first + heads].astype("float64") + dt_bias)).clip(*dt_limits)
    for t, slot in steps(len(state), slots, token_seq, token_pos):
        x, b, c = np.split(xbc[t].astype("float64"), [heads * size, heads * size + groups * rows])
        x = x.reshape(heads, size)
        b, c = (np.repeat(v.reshape(groups, rows), heads // groups, 0) for v in (b, c))
        decay = np.exp(a * time_steps[t])[:, None, None]
        new = decay * state[slot, layer] + (time_steps[t][:, None] * b)[:, :, None] * x[:, None]
        state[slot, layer] = new
        y[t] = np.einsum("hn,hnp->hp", c, new) + d[:, None] * x
    return state, y


def selective_scan(
    state: np.ndarray,
    x: np.ndarray,
    dt: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    a: np.ndarray,
    d: np.ndarray,
    slots: np.ndarray,
    token_seq: np.ndarray,
    token_pos: np.ndarray,
    layer: int,
) -> tuple[np.ndarray, np.ndarray]:
    """The operator ``recurrent.selective_scan``."""
    state, y = state.copy(), np.zeros_like(x)
    for t, slot in steps(len(state), slots, token_seq, token_pos):
        new = np.exp(a.astype("float64") * dt[t]) * state[slot, layer, 0] + dt[t] * b[t][:, None] * x[t]
        state[slot, layer, 0] = new
        y[t] = c[t] @ new + d * x[t]
    return state, y
