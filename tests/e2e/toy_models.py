"""Two small architectures without a KV cache: an encoder, and a gated linear recurrence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op, spec
from mlc_compiler.nn.states import Recurrent, RecurrentState, SequenceArray, State
from mlc_compiler.script import parse
from model_zoo.architecture import Architecture
from model_zoo.weight_map import WeightMap

VOCAB, HIDDEN, HEADS, LAYERS = 258, 24, 3, 2


@dataclass(frozen=True)
class ToyConfig:
    model_type: ClassVar[str] = "toy"

    vocab_size: int = VOCAB
    hidden_size: int = HIDDEN
    context_window_size: int = 64
    prefill_chunk_size: int = 8
    max_batch_size: int = 5

    @property
    def embedding_size(self) -> int:
        return self.hidden_size


class Encoder(nn.Module):
    """A residual layer of bidirectional attention."""

    def __init__(self, c: ToyConfig):
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.qkv = nn.Linear(c.hidden_size, 3 * c.hidden_size, bias=False)

    def encode(self, input_ids: Tensor) -> Tensor:
        b, s = input_ids.shape
        x = self.embed_tokens(input_ids)
        heads = op.reshape(self.qkv(x), (b, s, 3 * HEADS, HIDDEN // HEADS))
        q, k, v = op.split(heads, 3, axis=2)
        return x + op.reshape(op.scaled_dot_product_attention(q, k, v), (b, s, HIDDEN))


def encoder_functions(
    model: Encoder, config: ToyConfig, states: Sequence[State], dtype: str
) -> Mapping[str, spec.Function]:
    ids = spec.Tensor(["batch_size", "seq_len"], "int32")
    bounds = {"batch_size": config.max_batch_size, "seq_len": config.context_window_size}
    return {"encode": spec.Function(model.encode, {"input_ids": ids}, upper_bounds=bounds)}


ENCODER = Architecture(
    "toy",
    ToyConfig,
    Encoder,
    lambda c: WeightMap(),
    tiny=ToyConfig(),
    task="embedding",
    states=lambda config, dtype: (),
    entry_points=encoder_functions,
)


def encode(weights: Mapping[str, np.ndarray], ids: Sequence[int]) -> np.ndarray:
    """The result of ``Encoder.encode`` for one text in float64, [len(ids), HIDDEN]."""
    x = weights["embed_tokens.weight"][list(ids)].astype(np.float64)
    q, k, v = np.split((x @ weights["qkv.weight"].T).reshape(len(ids), 3 * HEADS, -1).swapaxes(0, 1), 3)
    scores = np.exp(q @ k.swapaxes(1, 2) / np.sqrt(HIDDEN // HEADS))
    return x + (scores / scores.sum(-1, keepdims=True) @ v).swapaxes(0, 1).reshape(len(ids), HIDDEN)


SCAN = f"""
@T.prim_func(private=True)
def scan(
    var_h: T.handle, var_gate: T.handle, var_x: T.handle, var_slots: T.handle, var_seq: T.handle, var_pos: T.handle,
    var_y: T.handle, layer: T.int64,
):
    n, num_slots, num_seqs = T.int64(), T.int64(), T.int64()
    h = T.match_buffer(var_h, (num_slots, {LAYERS}, {HIDDEN}), "float32")
    gate = T.match_buffer(var_gate, (n, {HIDDEN}), "float32")
    x = T.match_buffer(var_x, (n, {HIDDEN}), "float32")
    slots = T.match_buffer(var_slots, (num_seqs,), "int32")
    token_seq = T.match_buffer(var_seq, (n,), "int32")
    token_pos = T.match_buffer(var_pos, (n,), "int32")
    y = T.match_buffer(var_y, (n, {HIDDEN}), "float32")
    for d in T.parallel({HIDDEN}):
        for t in range(n):
            y[t, d] = T.float32(0)
            if token_pos[t] >= 0 and token_seq[t] >= 0 and token_seq[t] < num_seqs:
                slot = T.Cast("int64", slots[T.min(T.max(T.Cast("int64", token_seq[t]), 0), num_seqs - 1)])
                if slot >= 0 and slot < num_slots:
                    y[t, d] = gate[t, d] * h[slot, layer, d] + (T.float32(1) - gate[t, d]) * x[t, d]
                    h[slot, layer, d] = y[t, d]
"""


class RecurrentLayer(nn.Module):
    def __init__(self, c: ToyConfig):
        self.gate = nn.Linear(c.hidden_size, c.hidden_size)
        self.up = nn.Linear(c.hidden_size, c.hidden_size, bias=False)

    def forward(self, x: Tensor, state: RecurrentState, layer: int) -> Tensor:
        b, s, d = x.shape
        rows = op.reshape(x, (b * s, d))
        gate = op.sigmoid(self.gate(rows))
        args = [state.arrays["h"], gate, self.up(rows), state.slots, state.token_seq, state.token_pos]
        out = [state.arrays["h"], gate]
        state.arrays["h"], y = op.tensor_ir_inplace_op(parse(SCAN), "scan", args, [0, -1], out, [layer])
        return x + op.reshape(y, (b, s, d))


class Recurrence(nn.Module):
    """``h = gate * h + (1 - gate) * up(x)`` for each layer and element; the head is tied to the embedding."""

    def __init__(self, c: ToyConfig):
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList([RecurrentLayer(c) for _ in range(LAYERS)])

    def embed(self, input_ids: Tensor) -> Tensor:
        return self.embed_tokens(input_ids)

    def forward(self, x: Tensor, state: RecurrentState) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = layer(x, state, i)
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        return self.embed_tokens.lm_head_forward(hidden)


RECURRENCE = Architecture(
    "toy",
    ToyConfig,
    Recurrence,
    lambda c: WeightMap(),
    tiny=ToyConfig(),
    states=lambda config, dtype: (Recurrent((SequenceArray("h", (LAYERS, HIDDEN)),)),),
)


def recurrence_logits(weights: Mapping[str, np.ndarray], ids: Sequence[int]) -> np.ndarray:
    """The logits of ``Recurrence`` in float64, [len(ids), VOCAB]."""
    x = weights["embed_tokens.weight"][list(ids)].astype(np.float64)
    for i in range(LAYERS):
        w: Any = lambda name: weights[f"layers.{i}.{name}"]  # noqa: B023, E731
        gate = 1 / (1 + np.exp(-(x @ w("gate.weight").T + w("gate.bias"))))
        up, h, out = x @ w("up.weight").T, np.zeros(HIDDEN), []
        for g, u in zip(gate, up, strict=True):
            h = g * h + (1 - g) * u
            out.append(h)
        x = x + np.array(out)
    return x @ weights["embed_tokens.weight"].T
