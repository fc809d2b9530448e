"""The states and functions of an encoder-decoder model: a decoder with cross attention to an encoded source.

A sequence is the source's tokens followed by the decoder's, with consecutive positions. ``encode_source`` stores
keys and values of the source for each layer of the decoder; the functions of the decoder take the later tokens and
``source_lengths``, int32 [sequences].

The model offers the methods that ``decoder.entry_points`` needs; its ``forward`` takes the views of the decoder's KV
cache and of the source's. ``encode``: int32 [S], the views of the encoder's KV cache and of the source's,
and the dtype of activations -> the source's hidden states [1, S, D].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlc_compiler.ir.expr import maximum, minimum
from mlc_compiler.nn import Tensor, op, spec
from mlc_compiler.nn.kv_cache import KVCacheConfig, PagedKVCache
from mlc_compiler.nn.states import State, Tokens, inputs
from mlc_compiler.tir import te
from model_zoo import decoder

EXPORTED = (
    *("embed", "prefill", "decode", "batch_prefill", "batch_decode"),
    *("penalize", "sample", "sample_filtered", "logprobs"),
)


@dataclass(frozen=True, eq=False)
class TargetKV(KVCacheConfig):
    """KV cache of the tokens after a source; positions count from its end."""

    def fields(self) -> dict[str, spec.Tensor]:
        return {**super().fields(), "source_lengths": spec.Tensor(("num_seqs",), "int32")}

    def view(self, tensors: Mapping[str, Tensor], tokens: Tokens) -> TargetCache:
        arrays = dict(tensors)
        lengths = arrays.pop("source_lengths")
        return TargetCache(self, tokens, lengths, arrays)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "after_source": True}


class TargetCache(PagedKVCache):
    """The view of a ``TargetKV``. source_lengths: int32 [sequences], number of tokens of each source."""

    def __init__(self, config: TargetKV, tokens: Tokens, source_lengths: Tensor, arrays: Mapping[str, Tensor]):
        super().__init__(config, tokens, **arrays)
        self.source_lengths = source_lengths
        self._position: Tensor | None = None

    def _places(self) -> list[Tensor]:
        if self._position is None:
            args = [self.token_seq, self.token_pos, self.source_lengths]
            self._position = op.tensor_expr_op(_after_source, "after_source", args)
        return [self.page_table, self.token_seq, self._position]


def states(config: Any, kv_dtype: str) -> tuple[State, ...]:
    """The KV caches of the decoder, of the source, and of the encoder, which is kept for one call only.

    config: a ``DecoderConfig`` of the encoder, with ``num_decoder_layers``.
    """
    (cache,) = decoder.states(config, kv_dtype)
    assert isinstance(cache, KVCacheConfig)
    own = replace(cache, num_hidden_layers=config.num_decoder_layers)
    target = TargetKV(**vars(own))
    return target, replace(own, prefix="source_"), replace(cache, prefix="encoder_", kept=False)


def entry_points(model: Any, config: Any, states: Sequence[State], dtype: str) -> Mapping[str, spec.Function]:
    """The functions ``encode_source``, int32 [S] -> float32 [1, S, D], and those of ``decoder.entry_points``."""
    *of_decoder, of_encoder = states
    of_source = (of_decoder[1], of_encoder)

    def encode_source(input_ids: Tensor, views: Sequence[Any]) -> Tensor:
        source, own = views
        return model.encode(input_ids, own, source, dtype).astype("float32")

    given: dict[str, spec.Input] = {
        "input_ids": spec.Tensor(["seq_len"], "int32"),
        "views": inputs(of_source, "seq_len", bidirectional=of_source),
    }
    encode = spec.Function(encode_source, given, "packed", {"seq_len": config.prefill_chunk_size})
    functions = decoder.entry_points(model, config, of_decoder, dtype)
    return {"encode_source": encode, **{name: functions[name] for name in EXPORTED}}


def _after_source(token_seq: te.Tensor, token_pos: te.Tensor, lengths: te.Tensor) -> te.Tensor:
    def position(i: Any) -> Any:
        sequence = minimum(maximum(te.cast(token_seq[i], "int64"), 0), lengths.shape[0] - 1)
        return token_pos[i] - lengths[sequence]

    return te.compute(token_pos.shape, position, name="after_source")
