"""The states and functions of a decoder: embed, prefill, decode, their batched forms, hidden states, sampling.

A decoder's module offers ``embed``: int32 [S] -> [S, E]; ``forward``: [B, S, E] and a view of each state -> the last
hidden states [B, S, D]; ``logits``: [B, S, D] -> [B, S, V]. B batch, S sequence, D hidden, V vocabulary. E is the
config's ``embedding_size``, D for most models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlc_compiler.nn import Tensor, op, spec
from mlc_compiler.nn.kv_cache import KVCacheConfig, RopeMode
from mlc_compiler.nn.states import Recurrent, State, inputs
from mlc_compiler.tir import te
from mlc_errors import MLCError
from model_zoo.config import AttentionKind, BaseConfig, DecoderConfig, RecurrentKind

TOP_LOGPROBS = 20
"""The number of most probable tokens that ``logprobs`` returns."""


def states(config: BaseConfig, kv_dtype: str) -> tuple[State, ...]:
    """One state for each kind of layer: a paged KV cache of ``kv_dtype``, or a recurrent state."""
    kinds = [kind for layer in config.layer_kinds[: config.kv_layers] for kind in layer]
    return tuple(_state(config, kv_dtype, kind, kinds.count(kind)) for kind in dict.fromkeys(kinds))


def places(config: BaseConfig) -> tuple[tuple[tuple[int, int], ...], ...]:
    """For each layer and each state that it uses: the index in ``states``, and the layer's index in that state.

    Layers after the first ``kv_layers`` use the keys and values of the last of those layers that is of their kind.
    Raises MLCError if there is none.
    """
    own = config.layer_kinds[: config.kv_layers]
    order = list(dict.fromkeys(kind for layer in own for kind in layer))
    counts = Counter[AttentionKind | RecurrentKind]()

    def place(kind: AttentionKind | RecurrentKind, is_own: bool) -> tuple[int, int]:
        if kind not in order:
            raise MLCError(
                f"layers after the first {len(own)} have no keys and values, and none before is of their kind",
                where=["config.json"],
            )
        counts[kind] += is_own
        return order.index(kind), counts[kind] - 1

    return tuple(tuple(place(kind, i < len(own)) for kind in layer) for i, layer in enumerate(config.layer_kinds))


def _state(config: BaseConfig, dtype: str, kind: AttentionKind | RecurrentKind, layers: int) -> State:
    prefix = f"{kind.name}_" if kind.name else ""
    if isinstance(kind, AttentionKind):
        assert isinstance(config, DecoderConfig)
        return _cache(config, dtype, kind, layers, prefix)
    return Recurrent(tuple(replace(a, shape=(layers, *a.shape)) for a in kind.arrays), prefix)


def _cache(config: DecoderConfig, dtype: str, kind: AttentionKind, layers: int, prefix: str) -> KVCacheConfig:
    rope = kind.rope
    return KVCacheConfig(
        num_hidden_layers=layers,
        num_attention_heads=kind.heads or config.num_attention_heads,
        num_key_value_heads=kind.kv_heads or config.num_key_value_heads,
        head_dim=kind.head_dim or config.head_dim,
        v_head_dim=kind.latent or kind.value_dim,
        latent=kind.latent is not None,
        dtype=dtype,
        rope_mode=RopeMode.NORMAL if rope else RopeMode.NONE,
        inv_freq=rope.inv_freq if rope else None,
        attention_factor=rope.attention_factor if rope else 1.0,
        sliding_window=kind.window,
        chunked=kind.chunked,
        interleaved=config.interleaved_rotary,
        attention_sink_size=config.attention_sink_size or 0,
        prefix=prefix,
        rotary_axes=config.rotary_axes if rope else (),
    )


def entry_points(model: Any, config: Any, states: Sequence[State], dtype: str) -> Mapping[str, spec.Function]:
    """The exported functions of a decoder.

    config: has ``embedding_size``, ``vocab_size``, ``prefill_chunk_size`` and ``max_batch_size``. dtype: that of
    embeddings and hidden states; logits are float32.
    """
    return _Decoder(model, config, states, dtype).functions()


def embedding_entry_points(model: Any, config: Any, states: Sequence[State], dtype: str) -> Mapping[str, spec.Function]:
    """The subset of ``entry_points`` that computes hidden states, for embedding models."""
    functions = entry_points(model, config, states, dtype)
    return {name: functions[name] for name in ("embed", "batch_prefill_to_last_hidden_states")}


def draft_head_entry_points(
    model: Any, config: Any, states: Sequence[State], dtype: str
) -> Mapping[str, spec.Function]:
    """The functions that draft heads need too: hidden states of decode steps, float32 [B, 1, D], and their logits."""
    return _Decoder(model, config, states, dtype).draft_head_functions()


@dataclass(frozen=True)
class _Decoder:
    model: Any
    config: Any
    states: Sequence[State]
    dtype: str

    def embed(self, input_ids: Tensor) -> Tensor:
        return self.model.embed(input_ids).astype(self.dtype)

    def prefill(self, input_embed: Tensor, views: Sequence[Any]) -> Tensor:
        hidden = self.model.forward(input_embed, *views)
        return self._logits(op.tensor_expr_op(_last_token, "last_token", [hidden]))

    def decode(self, input_embed: Tensor, views: Sequence[Any]) -> Tensor:
        return self._logits(self.model.forward(input_embed, *views))

    def batch_decode(self, input_embed: Tensor, views: Sequence[Any]) -> Tensor:
        """One token of each sequence, [B, 1, D], computed as [1, B, D] to share the kernels of prefill."""
        batch, one, size = input_embed.shape
        logits = self.decode(input_embed.reshape(one, batch, size), views)
        return logits.reshape(batch, one, logits.shape[-1])

    def batch_prefill(self, input_embed: Tensor, logit_positions: Tensor, views: Sequence[Any]) -> Tensor:
        hidden = self.model.forward(input_embed, *views)
        return self._logits(op.take(hidden, logit_positions, axis=1))

    def last_hidden_states(self, input_embed: Tensor, views: Sequence[Any]) -> Tensor:
        """float32 [1, S, D], the input of the output head."""
        return self.model.forward(input_embed, *views).astype("float32")

    def last_hidden_states_of_steps(self, input_embed: Tensor, views: Sequence[Any]) -> Tensor:
        """float32 [B, 1, D], computed as [1, B, D] like ``batch_decode``."""
        batch, one, size = input_embed.shape
        hidden = self.last_hidden_states(input_embed.reshape(one, batch, size), views)
        return hidden.reshape(batch, one, hidden.shape[-1])

    def get_logits(self, hidden_states: Tensor) -> Tensor:
        """[B, D] -> [B, V]"""
        batch, size = hidden_states.shape
        logits = self._logits(hidden_states.astype(self.dtype).reshape(1, batch, size))
        return logits.reshape(batch, logits.shape[-1])

    def sample(self, logits: Tensor, temperature: Tensor, top_p: Tensor, uniform: Tensor) -> Tensor:
        return op.sample_top_p(op.softmax_with_temperature(logits, temperature), top_p, uniform)

    def sample_filtered(
        self,
        logits: Tensor,
        temperature: Tensor,
        top_k: Tensor,
        top_p: Tensor,
        min_p: Tensor,
        typical_p: Tensor,
        uniform: Tensor,
    ) -> Tensor:
        """Like ``sample``, with the filters top-k, top-p, min-p and typical-p."""
        probs = op.softmax_with_temperature(logits, temperature)
        kept = op.filter_probabilities(probs, top_k, top_p, min_p, typical_p)
        return op.sample_top_p(kept, op.ones(uniform.shape), uniform)

    def logprobs(self, logits: Tensor, token: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The log probability of each token, [B], and the k greatest log probabilities and their tokens, [B, k]."""
        logs = op.log_softmax(logits)
        found = op.topk(logs, min(TOP_LOGPROBS, self.config.vocab_size))
        assert isinstance(found, tuple)
        top, tokens = found
        return op.squeeze(op.gather_elements(logs, op.unsqueeze(token, 1), axis=1), 1), top, tokens

    def _logits(self, hidden: Tensor) -> Tensor:
        return self.model.logits(hidden).astype("float32")

    def functions(self) -> dict[str, spec.Function]:
        """The exported functions by name, with upper bounds of their symbolic sizes."""
        bounds = {"seq_len": self.config.prefill_chunk_size, "batch_size": self.config.max_batch_size}
        positions = {"logit_positions": spec.Tensor(["batch_size"], "int32")}
        ids = {"input_ids": spec.Tensor(["seq_len"], "int32")}
        embed_bounds = {"seq_len": max(bounds.values())}  # a batch_decode step embeds a token of each sequence

        def function(call: Any, inputs: Mapping[str, spec.Input]) -> spec.Function:
            return spec.Function(call, inputs, "packed", bounds)

        row = spec.Tensor(["batch_size"], "float32")
        logits = spec.Tensor(["batch_size", self.config.vocab_size], "float32")
        written = spec.Object(lambda logits: logits, {"logits": logits}, mutable=True)
        tokens = spec.Tensor(["batch_size", "num_tokens"], "int32")
        bias = spec.Tensor(["batch_size", "num_tokens"], "float32")
        penalized: dict[str, spec.Input] = {"logits": written, "token_ids": tokens, "counts": tokens, "bias": bias}
        penalized |= dict.fromkeys(("presence", "frequency", "repetition"), row)
        drawn = {"logits": logits, "temperature": row, "top_p": row, "uniform": row}
        whole = spec.Tensor(["batch_size"], "int32")
        filters = {"top_k": whole, "top_p": row, "min_p": row, "typical_p": row}
        filtered = {"logits": logits, "temperature": row, **filters, "uniform": row}
        return {
            "embed": spec.Function(self.embed, ids, "packed", embed_bounds),
            "prefill": function(self.prefill, self._inputs(1, "seq_len")),
            "decode": function(self.decode, self._inputs(1, 1)),
            "batch_prefill": function(self.batch_prefill, self._inputs(1, "seq_len", positions)),
            "batch_decode": function(self.batch_decode, self._inputs("batch_size", 1)),
            "batch_verify": function(self.decode, self._inputs(1, "seq_len")),
            "batch_prefill_to_last_hidden_states": function(self.last_hidden_states, self._inputs(1, "seq_len")),
            "penalize": spec.Function(op.penalize, penalized, "none", bounds),
            "sample": spec.Function(self.sample, drawn, "none", bounds),
            "sample_filtered": spec.Function(self.sample_filtered, filtered, "none", bounds),
            "logprobs": spec.Function(self.logprobs, {"logits": logits, "token": whole}, "none", bounds),
        }

    def draft_head_functions(self) -> dict[str, spec.Function]:
        bounds = {"batch_size": self.config.max_batch_size}
        hidden = {"hidden_states": spec.Tensor(["batch_size", self.config.hidden_size], "float32")}
        steps = self._inputs("batch_size", 1)
        return {
            "batch_decode_to_last_hidden_states": spec.Function(
                self.last_hidden_states_of_steps, steps, "packed", bounds
            ),
            "get_logits": spec.Function(self.get_logits, hidden, "packed", bounds),
        }

    def _inputs(
        self, batch: int | str, length: int | str, more: Mapping[str, spec.Input] | None = None
    ) -> dict[str, spec.Input]:
        tokens = length if batch == 1 else batch
        embed = spec.Tensor([batch, length, self.config.embedding_size], self.dtype)
        return {"input_embed": embed, **(more or {}), "states": inputs(self.states, tokens, single_query=length == 1)}


def _last_token(hidden: te.Tensor) -> te.Tensor:
    b, s, d = hidden.shape
    return te.compute((b, 1, d), lambda i, _, k: hidden[i, s - 1, k], name="last_token")
