"""The states and functions of an encoder: encode, and project if the model has dense heads.

An encoder's module offers ``embed``: int32 [S] and, if the configuration has a ``type_vocab_size``, the token types,
int32 [S] -> [S, D]; ``forward``: [1, S, D] and a view of each state -> the last hidden states [1, S, D]; with
dense heads ``project``: [B, D] -> [B, E]. B batch, S tokens of all sequences of a call, D hidden, E embedding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from mlc_compiler.nn import Tensor, spec
from mlc_compiler.nn.kv_cache import KVCacheConfig
from mlc_compiler.nn.states import State, inputs
from mlc_errors import MLCError, UnsupportedError
from model_zoo import decoder
from model_zoo.config import MAX_PREFILL_CHUNK, DecoderConfig

DENSE_ACTIVATIONS = ("identity", "tanh")


@dataclass(frozen=True, kw_only=True)
class WholeTextConfig(DecoderConfig):
    """Base of models that compute a text in one call: ``prefill_chunk_size`` is at least ``context_window_size``."""

    def __post_init__(self) -> None:
        self._fill("prefill_chunk_size", max(self.context_window_size, MAX_PREFILL_CHUNK))
        super().__post_init__()
        if self.prefill_chunk_size < self.context_window_size:
            raise MLCError(
                f"prefill_chunk_size: got {self.prefill_chunk_size}; expected at least context_window_size, "
                f"{self.context_window_size}: an encoder computes a text in one call",
                where=["config.json"],
            )


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(WholeTextConfig):
    """type_vocab_size: rows of the token type embedding, 0 or None for a model without it. dense_sizes: output sizes
    of the dense heads, which are applied to a pooled vector one after the other, with ``dense_bias`` and
    ``dense_activation``.
    """

    is_causal: ClassVar[bool] = False
    type_vocab_size: int | None = None
    dense_sizes: Sequence[int] = ()
    dense_bias: bool = False
    dense_activation: str = "identity"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "dense_sizes", tuple(self.dense_sizes))
        if self.dense_activation not in DENSE_ACTIVATIONS:
            raise UnsupportedError(
                f"dense_activation: got {self.dense_activation[:80]!r}; expected {' or '.join(DENSE_ACTIVATIONS)}",
                where=["config.json"],
            )


@dataclass(frozen=True, kw_only=True)
class LearnedPositionsConfig(EncoderConfig):
    """max_position_embeddings: rows of the table of positions, of which the first ``position_offset`` are unused."""

    rope: ClassVar[None] = None
    max_position_embeddings: int = 0

    def __post_init__(self) -> None:
        self._fill("max_position_embeddings", self.context_window_size)
        usable = self.max_position_embeddings - self.position_offset
        if self.context_window_size == self.max_position_embeddings:
            object.__setattr__(self, "context_window_size", usable)
        super().__post_init__()
        self.check_positions(usable)

    @property
    def position_offset(self) -> int:
        return 0


def states(config: DecoderConfig, kv_dtype: str) -> tuple[State, ...]:
    """KV caches of the tokens of one call; layers of one attention kind reuse the same memory."""
    states = decoder.states(config, kv_dtype)
    return tuple(replace(s, kept=False) for s in states if isinstance(s, KVCacheConfig))


def entry_points(model: Any, config: Any, states: Sequence[State], dtype: str) -> Mapping[str, spec.Function]:
    """The exported functions of an encoder. dtype: that of activations; results are float32.

    encode: ``input_ids`` int32 [S], optional ``token_types`` int32 [S], the states with ``token_seq``, ``token_pos``
    int32 [S] and ``lengths`` int32 [sequences] -> [S, D]. project: ``pooled`` float32 [B, D] -> [B, E].
    """

    def encode(input_ids: Tensor, views: Sequence[Any], token_types: Tensor | None = None) -> Tensor:
        ids = (input_ids,) if token_types is None else (input_ids, token_types)
        embedded = model.embed(*ids).astype(dtype)
        hidden = model.forward(embedded.reshape(1, *embedded.shape), *views)
        return hidden.reshape(*hidden.shape[1:]).astype("float32")

    def project(pooled: Tensor) -> Tensor:
        return model.project(pooled.astype(dtype)).astype("float32")

    bounds = {"seq_len": config.prefill_chunk_size, "batch_size": config.max_batch_size}
    ids = spec.Tensor(["seq_len"], "int32")
    given: dict[str, spec.Input] = {"input_ids": ids, "views": inputs(states, "seq_len", bidirectional=states)}
    given |= {"token_types": ids} if config.type_vocab_size else {}
    functions = {"encode": spec.Function(encode, given, "packed", bounds)}
    if config.dense_sizes:
        pooled = spec.Tensor(["batch_size", config.hidden_size], "float32")
        functions["project"] = spec.Function(project, {"pooled": pooled}, "packed", bounds)
    return functions
