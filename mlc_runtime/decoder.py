"""A compiled decoder: chunked prefill, then decode steps of one token per sequence.

The arrays of a step are allocated and bound to functions once; each token then takes three library calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from mlc_errors import MLCError, UsageError
from mlc_runtime.arrays import aligned_empty
from mlc_runtime.dtypes import dtype_of
from mlc_runtime.image_table import ImageTable
from mlc_runtime.memory import Array
from mlc_runtime.metadata import TensorSpec
from mlc_runtime.model import Call, CompiledModel
from mlc_runtime.packed import Packed, Prompt, groups
from mlc_runtime.sampler import ROW, Sampler
from mlc_runtime.source import encode_sources

HIDDEN_STATES = "batch_prefill_to_last_hidden_states"


class Decoder(CompiledModel):
    """A compiled model that predicts the next token: prefill, decode and verification of draft tokens."""

    @cached_property
    def batch(self) -> DecodeStep:
        """The decode step for batches. Its calls are bound once for each power of two of sequences."""
        return DecodeStep(self, self.spec.max_batch_size)

    @cached_property
    def images(self) -> ImageTable:
        """The table of images in prompts. Raises UsageError for a model without image input."""
        if self.spec.images is None:
            raise UsageError(
                f"{self.spec.model_type} models take no images", hint="use a model with a vision tower, such as llava"
            )
        return ImageTable(self._embed_image, 2 * self.spec.context_window_size)

    def check_ids(self, ids: Sequence[int]) -> np.ndarray:
        """See ``CompiledModel.check_ids``; also accepts the negative ids of image tokens if the model takes images."""
        array = np.asarray(ids)
        if self.spec.images is None or array.dtype.kind != "i" or array.size == 0:
            return super().check_ids(ids)
        super().check_ids(np.maximum(array, 0))
        return array.astype(np.int32)

    def prefill(self, prompts: Sequence[Prompt], logits: np.ndarray) -> None:
        """Extend sequences and write the logits of the last token of each to ``logits``, float32 [len(prompts), V].

        The prompts, at most max_batch_size, share calls of prefill_chunk_size tokens. In an encoder-decoder, the
        first prompt of a sequence is a source and a token, see ``encode_sources``.
        """
        if self.spec.decoder_start is not None:
            prompts = encode_sources(self, prompts)
        packed = self._packed(prompts)
        for span in self._spans(packed):
            inputs, is_image = self._inputs(packed, span), self._is_image(packed, span)
            if len(prompts) == 1 and not is_image:
                self.bind("prefill", inputs, [logits.reshape(1, 1, -1)])()
                continue
            first, stop = np.searchsorted(packed.lasts, [span.start, span.stop])
            ending = slice(first, max(stop, first + 1))  # later chunks of an unfinished prompt overwrite its logits
            inputs["logit_positions"] = np.minimum(packed.lasts[ending], span.stop - 1) - np.int32(span.start)
            self.bind("prefill_image" if is_image else "batch_prefill", inputs, [_batched(logits[ending])])()

    def verify(self, row: int, ids: Sequence[int]) -> np.ndarray:
        """Extend a sequence and return the logits after each of the tokens, float32 [len(ids), V]."""
        logits = aligned_empty((len(ids), self.spec.vocab_size), np.dtype(np.float32))
        packed = self._packed([(row, ids)])
        for span in self._spans(packed):
            inputs, is_image = self._inputs(packed, span), self._is_image(packed, span)
            inputs["logit_positions"] = np.arange(span.stop - span.start, dtype=np.int32)
            self.bind("prefill_image" if is_image else "batch_verify", inputs, [_batched(logits[span])])()
        return logits

    @cached_property
    def rotary_axes(self) -> int:
        """The number of position axes of the input ``rotary_pos``; 0 if functions do not have it."""
        inputs = self.library["decode"].spec.inputs if "decode" in self.library.functions else ()
        return next((int(t.shape[0]) for t in inputs if isinstance(t, TensorSpec) and t.name == "rotary_pos"), 0)

    def _packed(self, prompts: Sequence[Prompt]) -> Packed:
        packed = Packed.of(self, prompts)
        if not self.rotary_axes:
            return packed
        parts = [
            self.pool.rotary.extend(int(seq[0]), int(pos[0]), ids, self._cell)
            for seq, pos, ids in ((packed.token_seq[s], packed.token_pos[s], packed.ids[s]) for s in packed.sequences())
        ]
        return replace(packed, rotary_pos=np.concatenate(parts, axis=1))

    def _cell(self, token: int) -> tuple[int, int, int]:
        return self.images.cell(token)

    def _spans(self, packed: Packed) -> Iterator[slice]:
        """The tokens of each call; an image with bidirectional attention gets a call of its own."""
        size, images = self.spec.prefill_chunk_size, self.spec.images
        return self.images.spans(packed.ids, size) if images and images.sees_itself else packed.chunks(size)

    def _is_image(self, packed: Packed, span: slice) -> bool:
        """Whether the tokens of a call are those of an image with bidirectional attention."""
        images = self.spec.images
        return images is not None and images.sees_itself and bool(packed.ids[span.start] < 0)

    def hidden_states(self, texts: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """The last hidden state of every token, float32 [tokens, D] for each text; texts share calls."""
        return [state for group in groups(texts, self.spec) for state in self._hidden_states([texts[i] for i in group])]

    def _hidden_states(self, texts: Sequence[Sequence[int]]) -> list[np.ndarray]:
        with self.pool.lent(len(texts)) as rows:
            packed = self._packed(list(zip(rows, texts, strict=True)))
            return np.split(self._states(packed), packed.lasts[:-1] + 1)

    def extend(self, row: int, ids: Sequence[int]) -> np.ndarray:
        """Extend a sequence and return the last hidden state of each of the tokens, float32 [len(ids), D]."""
        return self._states(self._packed([(row, ids)]))

    def _states(self, packed: Packed) -> np.ndarray:
        hidden = aligned_empty((len(packed.ids), self.hidden_size), np.dtype(np.float32))
        for span in packed.chunks(self.spec.prefill_chunk_size):
            self.bind(HIDDEN_STATES, self._inputs(packed, span), [_batched(hidden[span])])()
        return hidden

    def results(self, name: str, ids: Sequence[int]) -> Iterator[list[np.ndarray]]:
        """Call function ``name`` on a text, starting from an empty cache; yields its results for each chunk."""
        with self.pool.lent(1) as rows:
            packed = self._packed([(rows[0], ids)])
            for span in packed.chunks(self.spec.prefill_chunk_size):
                yield self.call(name, self._inputs(packed, span))

    @property
    def hidden_size(self) -> int:
        """The size D of a hidden state. Raises MLCError for a library without the function that returns them."""
        if HIDDEN_STATES not in self.library.functions:
            raise MLCError(
                f"the library has no function {HIDDEN_STATES}", where=[str(self.library.path)], hint="compile it again"
            )
        return int(self.library[HIDDEN_STATES].spec.outputs[0].shape[-1])

    @cached_property
    def _embedding(self) -> TensorSpec:
        return self.library["embed"].spec.outputs[0]

    def embedding_buffer(self, num_tokens: int) -> Array:
        """An uninitialised array [num_tokens, embedding size] for the result of ``embed``."""
        return self.memory.empty((num_tokens, int(self._embedding.shape[-1])), dtype_of(self._embedding.dtype))

    def _inputs(self, packed: Packed, span: slice) -> dict[str, Array]:
        embedding = self._embeddings(packed.ids[span])
        places = {"token_seq": packed.token_seq[span], "token_pos": packed.token_pos[span]}
        if packed.rotary_pos is not None:
            places["rotary_pos"] = np.ascontiguousarray(packed.rotary_pos[:, span])
        if self._is_image(packed, span):
            places["lengths"] = np.zeros(len(self.pool.lengths), np.int32)
            places["lengths"][packed.token_seq[span][-1]] = packed.token_pos[span][-1] + 1
        return {"input_embed": _batched(embedding), **places}

    def _embeddings(self, ids: np.ndarray) -> Array:
        """The embeddings of tokens, [n, embedding size]; negative ids are tokens of images."""
        is_image = ids < 0
        if not is_image.any():
            embedding = self.embedding_buffer(len(ids))
            self.bind("embed", {"input_ids": ids}, [embedding])()
            return embedding
        rows = self.call("embed", {"input_ids": np.maximum(ids, 0)})[0]
        rows[is_image] = self.images.embeddings(ids[is_image])
        return rows

    def _embed_image(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        return self.call("image_embed", inputs)[0]


class DecodeStep:
    """A decode step of up to ``capacity`` sequences: its arrays and the library calls bound to them.

    ``assign`` selects the sequences; then, per token: set ``input_ids`` and ``token_pos``, ``forward()``, and sample
    from ``logits`` with ``sampler``. Sequence i uses element i of each array; the remaining elements are padding.
    logits: float32 [sequences, V], after the last call; input_ids, token_pos: int32 [capacity].
    """

    def __init__(self, model: Decoder, capacity: int):
        self._model, self.capacity, self._memory = model, capacity, model.memory
        self._inputs = self._memory.mirrored((3, -(-capacity // ROW) * ROW), np.dtype(np.int32))
        self.input_ids, self.token_pos, self._token_seq = self._inputs[:, :capacity]
        self._logits = self._memory.mirrored((capacity, model.spec.vocab_size), np.dtype(np.float32))
        self.sampler = Sampler(model, self._logits)
        self._embeddings = model.embedding_buffer(capacity)
        self._context = model.context
        self._bound: dict[int, tuple[Call, Call]] = {}
        self._rotary: dict[int, np.ndarray] = {}

    @property
    def logits(self) -> np.ndarray:
        logits = self._logits[: self._count]
        self._memory.fetch(logits)
        return logits

    def assign(self, rows: Sequence[int]) -> None:
        """Select rows of the pool and reset to greedy sampling."""
        self.token_pos[:] = -1
        self.sampler.assign([])
        self._select(rows, min(1 << (len(rows) - 1).bit_length(), self.capacity))

    def prefill(self, prompts: Sequence[Prompt]) -> None:
        """Extend the sequences by prompts and compute ``logits`` after each, see ``Decoder.prefill``."""
        self._model.prefill(prompts, self._logits[: len(prompts)])

    def forward(self) -> None:
        """Append ``input_ids`` at positions ``token_pos``, which the pool has reserved, and compute ``logits``."""
        _ = self._context.handle  # raises when the model is closed; the calls hold the raw handle
        self._memory.send(self._inputs)
        if self._model.rotary_axes:
            self._send_rotary()
        self._embed()
        self._decode()

    def _select(self, rows: Sequence[int], size: int) -> None:
        """Bind the calls to the first ``size`` elements; the first ``len(rows)`` are in use, the others padding."""
        self._count, self._rows, self._size = len(rows), list(rows), size
        self._token_seq[: len(rows)] = rows
        if size not in self._bound:
            self._bound[size] = self._bind(size)
        self._embed, self._decode = self._bound[size]

    def extend(self, row: int, begin: int, ids: Sequence[int]) -> None:
        """Append up to ``capacity`` tokens of one sequence at position ``begin``, which the pool has reserved.

        ``logits`` are those after each token. They are computed as in a decode step, and are bitwise equal to its
        logits if the kernels' order of summation does not depend on the number of rows.
        """
        count = len(ids)
        self.input_ids[:count] = ids
        self.token_pos[:count] = np.arange(begin, begin + count)
        self._select([row] * count, count)
        self.forward()

    def _send_rotary(self) -> None:
        positions, shift = self._rotary[self._size], self._model.pool.rotary.shift
        for i, row in enumerate(self._rows):
            positions[:, i] = self.token_pos[i] + shift(row, int(self.token_pos[i]))
        self._memory.send(positions)

    def _bind(self, size: int) -> tuple[Call, Call]:
        """The calls for the first ``size`` elements."""
        model, logits = self._model, self._logits[:size]
        places = {"token_seq": self._token_seq[:size], "token_pos": self.token_pos[:size]}
        embeddings = self._embeddings[:size]
        if model.rotary_axes:
            self._rotary[size] = self._memory.mirrored((model.rotary_axes, size), np.dtype(np.int32))
            places["rotary_pos"] = self._rotary[size]
        inputs = {"input_embed": unit_axis(embeddings), **places}
        embed = model.bind("embed", {"input_ids": self.input_ids[:size]}, [embeddings])
        return embed, self._bind_decode(inputs, logits)

    def _bind_decode(self, inputs: Mapping[str, Array], logits: np.ndarray) -> Call:
        """The call that computes ``logits``, [size, V]."""
        return self._model.bind("decode" if len(logits) == 1 else "batch_decode", inputs, [unit_axis(logits)])


def _batched(rows: Array) -> Array:
    """[n, D] as [1, n, D]."""
    return rows.reshape(1, *rows.shape)


def unit_axis(rows: Array) -> Array:
    """[n, D] as [n, 1, D]."""
    return rows.reshape(rows.shape[0], 1, rows.shape[1])
