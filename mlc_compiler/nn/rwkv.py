"""Layers of RWKV-5, 6 and 7: token shift, and RWKV's recurrences in place of attention.

Peng et al. 2024, "Eagle and Finch: RWKV with Matrix-Valued States and Dynamic Recurrence"; Peng et al. 2025, "RWKV-7
Goose with Expressive Dynamic State Evolution". T tokens per call, D hidden, H heads of N elements, x: [T, D].
Weights have the shapes of published checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..relax import ops
from ..relax.nodes import constant
from . import op
from .layers import GroupNorm, Linear
from .module import Module
from .states import RecurrentState, SequenceArray
from .tensor import Parameter, Tensor

SHIFT, CHANNEL_SHIFT, MATRICES = "shift", "channel_shift", "wkv"
"""Names of a layer's state arrays: the previous token for both parts of the layer, and the heads' matrices."""
DECAY_RANGE = math.exp(-0.5)  # RWKV-7: a step keeps at least the fraction exp(-exp(-0.5)) of a row


@dataclass(frozen=True)
class RwkvSizes:
    """Sizes of an RWKV layer: D, H, and the epsilon of the norm of each head."""

    hidden_size: int
    heads: int
    epsilon: float

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.heads

    @property
    def arrays(self) -> tuple[SequenceArray, ...]:
        """The state arrays of a layer."""
        tokens = (SequenceArray(name, (self.hidden_size,)) for name in (SHIFT, CHANNEL_SHIFT))
        return *tokens, SequenceArray(MATRICES, (self.heads, self.head_size, self.head_size))


def _before(x: Tensor, state: RecurrentState, layer: int, name: str = SHIFT) -> Tensor:
    """The difference between the previous token and each token."""
    return state.update(name, ops.token_shift, layer, x) - x


class _TimeMix(Module):
    """Base class of the three versions' time mixing: heads, and the norm of the result."""

    def __init__(self, sizes: RwkvSizes):
        self.sizes = sizes
        self.norm = GroupNorm(sizes.heads, sizes.hidden_size, sizes.epsilon)

    def _row(self, parameter: Tensor) -> Tensor:
        return op.reshape(parameter, (self.sizes.hidden_size,))

    def _heads(self, x: Tensor) -> Tensor:
        return op.reshape(x, (x.shape[0], self.sizes.heads, self.sizes.head_size))

    def _normalized(self, y: Tensor) -> Tensor:
        return self.norm(op.reshape(y, (y.shape[0], self.sizes.hidden_size)), 1, [])


class _GatedTimeMix(_TimeMix):
    """RWKV-5 and 6: a recurrence with a bonus for the current token, normalized per head and gated by SiLU."""

    def __init__(self, sizes: RwkvSizes):
        super().__init__(sizes)
        products = (Linear(sizes.hidden_size, sizes.hidden_size, bias=False) for _ in range(5))
        self.receptance, self.key, self.value, self.gate, self.output = products
        self.time_faaaa = Parameter((sizes.heads, sizes.head_size))

    def _mixed(self, inputs: dict[str, Tensor], decay: Tensor, state: RecurrentState, layer: int) -> Tensor:
        """Run the recurrence. inputs: those of the projections, by name. decay: float32, see ``recurrent.wkv``."""
        r, k, v = (self._heads(getattr(self, name)(inputs[name])) for name in ("receptance", "key", "value"))
        y = self._normalized(state.update(MATRICES, ops.wkv, layer, r, decay, k, v, self.time_faaaa))
        return self.output(y * op.silu(self.gate(inputs["gate"])))


class Rwkv5TimeMix(_GatedTimeMix):
    """Time mixing of RWKV-5 ("Eagle"): decays and mixing weights of the previous token are learned constants."""

    def __init__(self, sizes: RwkvSizes):
        super().__init__(sizes)
        for name in ("receptance", "key", "value", "gate"):
            setattr(self, f"time_mix_{name}", Parameter((1, 1, sizes.hidden_size)))
        self.time_decay = Parameter((sizes.heads, sizes.head_size))

    def forward(self, x: Tensor, state: RecurrentState, layer: int) -> Tensor:
        names, change = ("receptance", "key", "value", "gate"), _before(x, state, layer)
        shares = {name: 1.0 - self._row(getattr(self, f"time_mix_{name}")) for name in names}
        decay = op.exp(-op.exp(self.time_decay.astype("float32")))
        return self._mixed({name: x + change * share for name, share in shares.items()}, decay, state, layer)


class Rwkv6TimeMix(_GatedTimeMix):
    """Time mixing of RWKV-6 ("Finch"): decays and mixing weights are low-rank functions of the tokens."""

    names = {"w": "decay", "k": "key", "v": "value", "r": "receptance", "g": "gate"}
    """The mixed inputs, in the order of ``time_maa_w2``."""

    def __init__(self, sizes: RwkvSizes, mix_rank: int, decay_rank: int):
        super().__init__(sizes)
        size, self.mix_rank = sizes.hidden_size, mix_rank
        self.time_maa_x = Parameter((1, 1, size))
        for name in self.names:
            setattr(self, f"time_maa_{name}", Parameter((1, 1, size)))
        self.time_maa_w1 = Parameter((size, len(self.names) * mix_rank))
        self.time_maa_w2 = Parameter((len(self.names), mix_rank, size))
        self.time_decay = Parameter((1, 1, size))
        self.time_decay_w1, self.time_decay_w2 = Parameter((size, decay_rank)), Parameter((decay_rank, size))

    def forward(self, x: Tensor, state: RecurrentState, layer: int) -> Tensor:
        change, dtype = _before(x, state, layer), x.dtype
        low = op.tanh(op.matmul(x + change * self._row(self.time_maa_x), self.time_maa_w1.astype(dtype)))
        low = op.permute_dims(op.reshape(low, (x.shape[0], len(self.names), self.mix_rank)), (1, 0, 2))
        shares = op.split(op.matmul(low, self.time_maa_w2.astype(dtype)), len(self.names), axis=0)
        inputs = {}
        for (name, target), share in zip(self.names.items(), shares, strict=True):
            inputs[target] = x + change * (self._row(getattr(self, f"time_maa_{name}")) + op.reshape(share, x.shape))
        return self._mixed(inputs, self._heads(self._decay(inputs["decay"])), state, layer)

    def _decay(self, x: Tensor) -> Tensor:
        low = op.tanh(op.matmul(x, self.time_decay_w1.astype(x.dtype)))
        change = op.matmul(low, self.time_decay_w2.astype(x.dtype)).astype("float32")
        return op.exp(-op.exp(self._row(self.time_decay).astype("float32") + change))


class LowRank(Module):
    """``up(activation(down(x)))`` with ``rank`` elements in between."""

    def __init__(self, size: int, rank: int, activation: Callable[[Tensor], Tensor] | None = None, bias: bool = True):
        self.activation = activation
        self.down, self.up = Linear(size, rank, bias=False), Linear(rank, size, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        low = self.down(x)
        return self.up(self.activation(low) if self.activation else low)


class Rwkv7TimeMix(_TimeMix):
    """Time mixing of RWKV-7 ("Goose"): a generalized delta rule; values are mixed with the first layer's.

    ranks: of the low-rank projections for decay, step, weight of the first layer's values, and gate. first: whether
    this is the first layer.
    """

    def __init__(self, sizes: RwkvSizes, ranks: tuple[int, int, int, int], first: bool):
        super().__init__(sizes)
        size, (decay, step, share, gate) = sizes.hidden_size, ranks
        for name in ("x_r", "x_w", "x_k", "x_v", "x_a", "x_g"):
            setattr(self, name, Parameter((1, 1, size)))
        self.r_proj, self.k_proj, self.v_proj, self.o_proj = (Linear(size, size, bias=False) for _ in "rkvo")
        self.k_k, self.k_a = Parameter((size,)), Parameter((size,))
        self.r_k = Parameter((sizes.heads, sizes.head_size))
        self.w_lora, self.a_lora = LowRank(size, decay, op.tanh), LowRank(size, step)
        self.v_lora = None if first else LowRank(size, share)
        self.g_lora = LowRank(size, gate, op.sigmoid, bias=False)

    def forward(self, x: Tensor, values: Tensor | None, state: RecurrentState, layer: int) -> tuple[Tensor, Tensor]:
        """Apply to x [T, D]. values: the first layer's (None in it). Returns y [T, D] and the first layer's values."""
        change = _before(x, state, layer)
        xr, xw, xk, xv, xa, xg = (x + change * self._row(getattr(self, f"x_{name}")) for name in "rwkvag")
        r, k, v = self.r_proj(xr), self.k_proj(xk), self.v_proj(xv)
        if self.v_lora and values is not None:
            v = v + (values - v) * op.sigmoid(self.v_lora(xv))
        step = op.sigmoid(self.a_lora(xa))
        decay = op.exp(op.sigmoid(self.w_lora(xw).astype("float32")) * -DECAY_RANGE)
        removed = self._unit(self._heads(k * self.k_k.astype(k.dtype)))
        k = k * (1.0 + (step - 1.0) * self.k_a.astype(k.dtype))
        r, decay, k, v_heads, step = map(self._heads, (r, decay, k, v, step))
        y = state.update(MATRICES, ops.rwkv7, layer, r, decay, k, v_heads, -removed, removed * step)
        bonus = op.sum(r * k * self.r_k.astype(r.dtype), axis=-1, keepdims=True) * v_heads
        y = self._normalized(y) + op.reshape(bonus, x.shape)
        return self.o_proj(y * self.g_lora(xg)), v if values is None else values

    def _unit(self, x: Tensor) -> Tensor:
        """Normalize vectors along the last axis to unit length."""
        size = self.sizes.head_size
        weight = Tensor(constant(np.full(size, 1 / math.sqrt(size), np.float32)))
        return op.rms_norm(x, weight, epsilon=1e-24)


class ChannelMix(Module):
    """Channel mixing: ``value(max(key(xk), 0)^2)``, gated by ``sigmoid(receptance(xr))`` before RWKV-7.

    shares: names of the mixing weights for xk and xr, [1, 1, D], or of one, [D]. reversed_shares: they weight the
    token itself, else the previous one.
    """

    def __init__(self, size: int, inner: int, shares: tuple[str, ...], reversed_shares: bool = False):
        self.size, self.shares, self.reversed_shares = size, shares, reversed_shares
        gated = len(shares) == 2
        for name in shares:
            setattr(self, name, Parameter((1, 1, size) if gated else (size,)))
        self.key, self.value = Linear(size, inner, bias=False), Linear(inner, size, bias=False)
        self.receptance = Linear(size, size, bias=False) if gated else None

    def forward(self, x: Tensor, state: RecurrentState, layer: int) -> Tensor:
        change = _before(x, state, layer, CHANNEL_SHIFT)
        shares = [op.reshape(getattr(self, name), (self.size,)) for name in self.shares]
        inputs = [x + change * (1.0 - share if self.reversed_shares else share) for share in shares]
        y = self.value(op.square(op.relu(self.key(inputs[0]))))
        return op.sigmoid(self.receptance(inputs[1])) * y if self.receptance else y
