"""KV caches at run time: ``vm.builtin.kv_state_*`` and the pages of each sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlc_errors import MLCError

NO_PAGE = -1
ATTENTION_CACHE = "attention_kv_cache"


class KVStateError(MLCError, ValueError):
    """An unknown or existing sequence, a full cache, or calls in the wrong order."""


@dataclass
class _Sequence:
    row: int
    length: int = 0
    pages: list[int] = field(default_factory=list)


class KVState:
    """A KV cache created by the exported function of a ``TIRPagedKVCache``.

    arrays: k_pages [L, P, G, D, S], v_pages [L, P, G, S, E], for int8 pages k_scales and v_scales [L, P, G, S], and
    page_table int32 [sequences, pages]; compiled functions write keys and values into them. Between ``begin_forward``
    and ``end_forward``, compiled functions compute the tokens given to ``begin_forward``.
    """

    def __init__(self, arrays: tuple[np.ndarray, ...]):
        self.arrays = arrays
        *self._stored, self._table = arrays
        self.page_size = arrays[0].shape[-1]
        self._free_pages = list(range(arrays[0].shape[1]))[::-1]
        self._free_rows = list(range(len(self._table)))[::-1]
        self._sequences: dict[int, _Sequence] = {}
        self._tokens: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def inputs(self) -> tuple[np.ndarray, ...]:
        """The arguments of a compiled function for the cache: the arrays, and each token's sequence and position."""
        if self._tokens is None:
            raise KVStateError("the cache is used outside of begin_forward and end_forward")
        return (*self.arrays, *self._tokens)

    def add_sequence(self, seq_id: int) -> None:
        """Add an empty sequence."""
        if seq_id in self._sequences:
            raise KVStateError(f"sequence {seq_id} exists already")
        if not self._free_rows:
            raise KVStateError(f"the cache holds {len(self._sequences)} sequences; it was created for as many")
        self._sequences[seq_id] = _Sequence(self._free_rows.pop())

    def remove_sequence(self, seq_id: int) -> None:
        """Remove a sequence and free its pages."""
        found = self._find(seq_id)
        self._resize(found, 0)
        self._free_rows.append(found.row)
        del self._sequences[seq_id]

    def fork_sequence(self, parent: int, child: int, position: int = -1) -> None:
        """Add a sequence with the first ``position`` tokens of another one; -1: all of them."""
        source = self._find(parent)
        length = source.length if position == -1 else position
        if not 0 <= length <= source.length:
            raise KVStateError(f"fork at position {position}: sequence {parent} has {source.length} tokens")
        self.add_sequence(child)
        copy = self._find(child)
        self._resize(copy, length)
        for pages in self._stored:
            pages[:, copy.pages] = pages[:, source.pages[: len(copy.pages)]]

    def popn(self, seq_id: int, count: int) -> None:
        """Remove the last ``count`` tokens of a sequence."""
        found = self._find(seq_id)
        if not 0 <= count <= found.length:
            raise KVStateError(f"popn: got {count}; sequence {seq_id} has {found.length} tokens")
        self._resize(found, found.length - count)

    def begin_forward(self, seq_ids: Sequence[int], lengths: Sequence[int]) -> None:
        """Allocate pages for the next ``lengths[i]`` tokens of sequence ``seq_ids[i]``, computed by the next calls."""
        if self._tokens is not None:
            raise KVStateError("begin_forward: the last one was not ended by end_forward")
        found = [(self._find(seq_id), count) for seq_id, count in zip(seq_ids, lengths, strict=True)]
        rows = [np.full(count, s.row, np.int32) for s, count in found]
        positions = [np.arange(s.length, s.length + count, dtype=np.int32) for s, count in found]
        for sequence, count in found:
            self._resize(sequence, sequence.length + count)
        self._tokens = np.concatenate(rows), np.concatenate(positions)

    def end_forward(self) -> None:
        """End the computation of the tokens given to ``begin_forward``."""
        self._tokens = None

    def _find(self, seq_id: int) -> _Sequence:
        if seq_id not in self._sequences:
            raise KVStateError(f"no sequence {seq_id}; add_sequence begins one")
        return self._sequences[seq_id]

    def _resize(self, sequence: _Sequence, length: int) -> None:
        table, wanted = self._table[sequence.row], -(-length // self.page_size)
        if wanted > len(table) or wanted - len(sequence.pages) > len(self._free_pages):
            raise KVStateError(
                f"the cache is full: {length} tokens need {wanted} pages", hint="raise max_total_seq_len"
            )
        while len(sequence.pages) < wanted:
            table[len(sequence.pages)] = self._free_pages[-1]
            sequence.pages.append(self._free_pages.pop())
        while len(sequence.pages) > wanted:
            self._free_pages.append(sequence.pages.pop())
            table[len(sequence.pages)] = NO_PAGE
        sequence.length = length


class AttentionCache:
    """An ``nn.KVCache`` at run time: an array [capacity, *unit_shape] and how many of its elements are filled."""

    def __init__(self, array: np.ndarray, filled: int = 0):
        self.array, self.filled = array, filled
        self.wanted = filled

    @property
    def inputs(self) -> tuple[np.ndarray, int]:
        """What functions take for the cache."""
        return self.array, self.filled

    def clear(self) -> None:
        """Remove all elements."""
        self.filled = self.wanted = 0

    def popn(self, count: int) -> None:
        """Remove the last ``count`` elements."""
        if not 0 <= count <= self.filled:
            raise KVStateError(f"popn: got {count}; the cache has {self.filled} elements")
        self.filled = self.wanted = self.filled - count

    def grow(self) -> bool:
        """Double the capacity until it has room for what a call has appended, or else accept it; whether it grew."""
        capacity = len(self.array)
        while capacity < self.wanted:
            capacity = max(1, 2 * capacity)
        if capacity == len(self.array):
            return False
        larger = np.zeros((capacity, *self.array.shape[1:]), self.array.dtype)
        larger[: self.filled] = self.array[: self.filled]
        self.array = larger
        return True


def created(kind: str, result: Any) -> Any:
    """The cache, or the caches, that a function has created."""
    if kind != ATTENTION_CACHE:
        return KVState(result)
    return tuple(AttentionCache(array, filled) for array, filled in result)


def grown(arguments: Sequence[Any]) -> bool:
    """Whether caches among the arguments grew because the call appended more than they hold; or else it is done."""
    found = [a for a in _flat(arguments) if isinstance(a, AttentionCache)]
    if any([cache.grow() for cache in found]):
        return True
    for cache in found:
        cache.filled = cache.wanted
    return False


def expanded(arguments: Sequence[Any]) -> list[Any]:
    """The arguments of a function, caches, also in tuples of them, as their arrays and numbers."""
    flat = _flat(arguments)
    return [part for a in flat for part in (a.inputs if isinstance(a, KVState | AttentionCache) else (a,))]


def _flat(arguments: Sequence[Any]) -> list[Any]:
    """The arguments, with the caches of tuples of caches in their place."""
    flat: list[Any] = []
    for a in arguments:
        several = isinstance(a, tuple | list) and bool(a) and all(isinstance(c, AttentionCache) for c in a)
        flat += a if several else [a]
    return flat


def restored(result: Any, arguments: Sequence[Any]) -> Any:
    """Replace the arrays of caches in a function's result by the caches among the arguments."""
    if not isinstance(result, tuple):
        return result
    for state in _flat(arguments):
        if isinstance(state, KVState) and result and result[0] is state.arrays[0]:
            return state
        if isinstance(state, AttentionCache) and len(result) == 2 and result[0] is state.array:
            state.wanted = int(result[1])
            return state
    return tuple(restored(r, arguments) for r in result)
