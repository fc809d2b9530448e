"""A compiled language model with its weights: prefill and decode on a paged KV cache.

Everything that a token needs is allocated and bound here, once; then a token is three calls into the library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from mlc_errors import MLCError, UsageError
from mlc_runtime.arguments import check_arguments
from mlc_runtime.arrays import aligned_empty, dtype_of, to_tensor, tvm_ffi
from mlc_runtime.kv_cache import PagedKVCache
from mlc_runtime.library import Context, Library
from mlc_runtime.metadata import model_spec
from mlc_runtime.weights import LoadProgress, Params, TensorCache, load_params

Call = Callable[[], object]


class CompiledModel:
    """The library's functions bound to the weights of a folder.

    Raises MLCError when the weights do not fit the library. One call at a time.
    """

    def __init__(
        self,
        library: Library,
        weights: TensorCache,
        num_threads: int | None = None,
        progress: LoadProgress | None = None,
    ):
        self.library = library
        self.spec = model_spec(library.metadata)
        self.context = Context(library, num_threads)
        self.params: Params = load_params(self.spec.params, weights, self._pack, progress)
        self._packed_params = to_tensor(self.params.table)
        self.embedding = library["embed"].spec.outputs[0]

    def bind(self, name: str, inputs: Mapping[str, np.ndarray | tvm_ffi.Tensor], outputs: Sequence[np.ndarray]) -> Call:
        """A call without arguments of function `name` on the given arrays, which are checked here and never again."""
        spec = self.library[name].spec
        given = {"packed_params": self._packed_params, **inputs}
        missing = [t.name for t in spec.inputs if t.name not in given]
        if missing:
            raise MLCError(f"function {name} wants {', '.join(missing)}, which this runtime does not provide")
        tensors, _ = check_arguments(spec, tuple(given[t.name] for t in spec.inputs))
        return partial(self.library.raw(name), self.context.handle, *tensors, *map(to_tensor, outputs))

    def new_cache(self, num_sequences: int = 1, max_tokens: int | None = None) -> PagedKVCache:
        """An empty cache; each sequence may grow to `max_tokens`, at most and by default the context window."""
        limit = self.spec.context_window_size
        return PagedKVCache(self.spec.kv_cache, num_sequences, min(max_tokens or limit, limit))

    def prefill(self, cache: PagedKVCache, sequence: int, ids: Sequence[int], logits: np.ndarray) -> None:
        """Append `ids` to the sequence and write the logits of the last of them to `logits`, float32 [V]."""
        for _, inputs in self._chunks(cache, sequence, ids):
            self.bind("prefill", inputs, [logits.reshape(1, 1, -1)])()

    def verify(self, cache: PagedKVCache, sequence: int, ids: Sequence[int]) -> np.ndarray:
        """Append `ids` to the sequence and return the logits after each of them, float32 [len(ids), V]."""
        logits = aligned_empty((len(ids), self.spec.vocab_size), np.dtype(np.float32))
        for span, inputs in self._chunks(cache, sequence, ids):
            self.bind("batch_verify", inputs, [_batched(logits[span])])()
        return logits

    def check_ids(self, ids: Sequence[int]) -> np.ndarray:
        """The ids as int32 [n]. Raises UsageError for an empty list and for ids outside of the vocabulary."""
        array = np.asarray(ids)
        if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
            got = f"{array.dtype} {list(array.shape)}"
            raise UsageError(f"token ids are {got}; expected a list of at least one integer")
        low, high = int(array.min()), int(array.max())
        if low < 0 or high >= self.spec.vocab_size:
            wrong = low if low < 0 else high
            raise UsageError(f"token id {wrong} is outside of the vocabulary; expected 0 to {self.spec.vocab_size - 1}")
        return array.astype(np.int32)

    def close(self) -> None:
        self.context.close()

    def _chunks(
        self, cache: PagedKVCache, sequence: int, ids: Sequence[int]
    ) -> Iterator[tuple[slice, dict[str, np.ndarray]]]:
        """Make room for `ids` in the cache; then, chunk by chunk, which of them and the inputs for a model function."""
        ids = self.check_ids(ids)
        begin = cache.extend(sequence, len(ids))
        token_pos = np.arange(begin, begin + len(ids), dtype=np.int32)
        token_seq = np.full(len(ids), sequence, np.int32)
        for first in range(0, len(ids), self.spec.prefill_chunk_size):
            span = slice(first, min(first + self.spec.prefill_chunk_size, len(ids)))
            embedding = self.embedding_buffer(span.stop - first)
            self.bind("embed", {"input_ids": ids[span]}, [embedding])()
            yield span, {"input_embed": _batched(embedding), **cache_inputs(cache, token_seq[span], token_pos[span])}

    def embedding_buffer(self, num_tokens: int) -> np.ndarray:
        """Uninitialised [num_tokens, hidden size], the result of `embed`."""
        return aligned_empty((num_tokens, int(self.embedding.shape[-1])), dtype_of(self.embedding.dtype))

    def _pack(self, function: str, source: tvm_ffi.Tensor, packed: tvm_ffi.Tensor) -> None:
        self.library.raw(function)(self.context.handle, source, packed)


class DecodeStep:
    """One decoding step of some sequences of a cache: the arrays it works on and the calls that are bound to them.

    Per token: set `input_ids` and `token_pos`, `forward()`, set `uniform`, `sample()`, read `token`.
    logits: float32 [batch, V]; input_ids, token_pos, token: int32 [batch];
    temperature, top_p, uniform: float32 [batch].
    """

    def __init__(self, model: CompiledModel, cache: PagedKVCache, sequences: Sequence[int]):
        batch, vocab = len(sequences), model.spec.vocab_size
        token_seq = np.array(sequences, np.int32)
        self.input_ids, self.token_pos, self.token = (np.zeros(batch, np.int32) for _ in range(3))
        self.temperature, self.top_p, self.uniform = (np.zeros(batch, np.float32) for _ in range(3))
        self.top_p[:] = 1.0
        self.logits = aligned_empty((batch, vocab), np.dtype(np.float32))
        self._context = model.context
        embedding = model.embedding_buffer(batch)
        inputs = {"input_embed": _unit_axis(embedding), **cache_inputs(cache, token_seq, self.token_pos)}
        self._embed = model.bind("embed", {"input_ids": self.input_ids}, [embedding])
        self._decode = model.bind("decode" if batch == 1 else "batch_decode", inputs, [_unit_axis(self.logits)])
        settings = {"temperature": self.temperature, "top_p": self.top_p, "uniform": self.uniform}
        self._sample = model.bind("sample", {"logits": self.logits, **settings}, [self.token])

    def forward(self) -> None:
        """Append `input_ids` at `token_pos`, for which the cache has room, and compute `logits`."""
        _ = self._context.handle  # the calls hold the raw handle, which is dead once the model is closed
        self._embed()
        self._decode()

    def sample(self) -> None:
        """Choose `token` from `logits`; temperature 0 takes the most likely one."""
        _ = self._context.handle
        self._sample()


def _batched(rows: np.ndarray) -> np.ndarray:
    """[n, D] as [1, n, D]."""
    return rows.reshape(1, *rows.shape)


def _unit_axis(rows: np.ndarray) -> np.ndarray:
    """[n, D] as [n, 1, D]."""
    return rows.reshape(rows.shape[0], 1, rows.shape[1])


def cache_inputs(cache: PagedKVCache, token_seq: np.ndarray, token_pos: np.ndarray) -> dict[str, np.ndarray]:
    """The inputs that every function with attention has, by name."""
    return {
        "k_pages": cache.k_pages,
        "v_pages": cache.v_pages,
        "page_table": cache.page_table,
        "token_seq": token_seq,
        "token_pos": token_pos,
    }
