"""The sequences of a model and the memory of their states, shared by sessions, streams and batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod

from mlc_errors import ResourceError, UsageError
from mlc_runtime.dtypes import dtype_of
from mlc_runtime.memory import HOST, Array, HostMemory
from mlc_runtime.model_spec import ModelSpec, PagedKVSpec, RecurrentSpec, StateSpec
from mlc_runtime.pages import PagedState
from mlc_runtime.rotary_positions import RotaryPositions
from mlc_runtime.slots import RecurrentState

MAX_SEQUENCES = 1024
ROLLBACK = 256


class SequencePool:
    """Sequences of up to ``max_tokens`` tokens, each in a row of the states' tables.

    ``inputs``: the states' arrays by the names of the compiled functions' inputs; their addresses never change.
    rollback: number of tokens by which a sequence can always be truncated, even with a sliding window.
    ``lengths``: number of tokens of each row. ``rotary``: rotary positions, where they differ from token positions.
    num_tokens: capacity of the pages in tokens of all sequences together.
    """

    def __init__(
        self,
        states: Sequence[StateSpec],
        max_tokens: int,
        num_tokens: int,
        rows: int = MAX_SEQUENCES,
        rollback: int = ROLLBACK,
        memory: HostMemory = HOST,
    ):
        self.max_tokens = max_tokens
        paged = [s for s in states if isinstance(s, PagedKVSpec)]
        self._paged = [PagedState(s, rows, max_tokens, -(-num_tokens // s.page_size), rollback, memory) for s in paged]
        self._recurrent = [RecurrentState(s, rows, memory) for s in states if not isinstance(s, PagedKVSpec)]
        self._states: list[PagedState | RecurrentState] = [*self._paged, *self._recurrent]
        self.inputs: dict[str, Array] = {n: array for s in self._states for n, array in s.inputs.items()}
        self.lengths = [0] * rows
        self._limits = [0] * rows
        self._free = list(range(rows - 1, -1, -1))
        self._retired: deque[int] = deque()
        self.rotary = RotaryPositions(rows)

    @staticmethod
    def of(spec: ModelSpec, memory: HostMemory = HOST) -> SequencePool:
        """A pool with pages for max_batch_size + 1 full contexts, or for as many tokens as fit in the memory.

        It has MAX_SEQUENCES rows, or 2 max_batch_size + 1 if memory is committed at allocation (on GPUs).
        """
        context = spec.context_window_size
        rows = MAX_SEQUENCES if memory.provides_on_write else min(2 * spec.max_batch_size + 1, MAX_SEQUENCES)
        per_token = sum(_bytes_per_token(s) for s in spec.states if isinstance(s, PagedKVSpec))
        slots = sum(_bytes_per_slot(s) for s in spec.states if isinstance(s, RecurrentSpec))
        available = memory.available_bytes - (0 if memory.provides_on_write else rows * slots)
        fitting = max(available // per_token, context) if per_token else context
        num_tokens = min(fitting, (spec.max_batch_size + 1) * context)
        return SequencePool(spec.states, context, num_tokens, rows, memory=memory)

    @property
    def num_sequences(self) -> int:
        return len(self.lengths) - len(self._free) - len(self._retired)

    def add(self, max_tokens: int | None = None) -> int:
        """The row of a new, empty sequence. max_tokens: its maximum length, at most and by default the pool's."""
        while self._retired:
            self.remove(self._retired.popleft())
        if not self._free:
            raise ResourceError(
                f"the pool is full: {len(self.lengths)} sequences; expected at most that many",
                hint="close sessions that are not used any more",
            )
        row = self._free.pop()
        self._limits[row] = min(max_tokens or self.max_tokens, self.max_tokens)
        for state in self._states:
            state.begin(row)
        return row

    def limit(self, row: int) -> int:
        """The maximum number of tokens of the sequence."""
        return self._limits[row]

    def extend(self, row: int, count: int) -> int:
        """Reserve ``count`` more tokens and return the position of the first.

        Raises ResourceError, with no effect, when the sequence would exceed its limit or there are no pages left.
        """
        begin = self.lengths[row]
        end = begin + count
        if end > self._limits[row]:
            raise ResourceError(
                f"the context is full: {end} tokens; expected at most {self._limits[row]}",
                hint="shorten the prompt, or compile with a larger context_window_size",
            )
        try:
            for state in self._paged:
                state.reserve(row, begin, end)
        except ResourceError:
            for state in self._paged:
                state.truncate(row, begin)
            raise
        self.lengths[row] = end
        return begin

    def can_truncate(self, row: int, length: int) -> bool:
        """Whether the sequence can be truncated to ``length`` tokens.

        False for recurrent states, which cannot be rolled back, and if a sliding window has freed pages.
        """
        return length == self.lengths[row] or all(state.can_truncate(row, length) for state in self._states)

    @property
    def can_fork(self) -> bool:
        """Whether sequences can be forked; False if they begin with a source (encoder-decoders)."""
        return not any(state.spec.after_source for state in self._paged)

    @property
    def can_roll_back(self) -> bool:
        """Whether the last tokens of any sequence can be removed; False with recurrent states."""
        return not self._recurrent

    def save(self, row: int, spare: int) -> None:
        """Copy a sequence's recurrent states to the empty row ``spare``, for ``restore``."""
        for state in self._recurrent:
            state.fork(row, self.lengths[row], spare)

    def restore(self, row: int, spare: int, length: int) -> None:
        """Truncate a sequence to its ``length`` when its recurrent states were saved to ``spare``, and restore them."""
        for paged in self._paged:
            paged.truncate(row, length)
        for state in self._recurrent:
            state.fork(spare, length, row)
        self.lengths[row] = length

    def truncate(self, row: int, length: int) -> None:
        """Remove the tokens from position ``length`` on. Raises UsageError where ``can_truncate`` is false."""
        self._check_prefix(row, length)
        if length < self.lengths[row]:
            for state in self._states:
                state.truncate(row, length)
        self.lengths[row] = length

    def fork(self, row: int, length: int | None = None, max_tokens: int | None = None) -> int:
        """The row of a new sequence with the first ``length`` tokens of another, by default all of them.

        Pages are shared until one of the two writes into them. Raises UsageError where ``truncate`` would, and
        ResourceError where ``add`` would.
        """
        if not self.can_fork:
            raise UsageError("sequences with a source cannot be forked", hint="begin a new one with the same source")
        length = self.lengths[row] if length is None else length
        self._check_prefix(row, length)
        copy = self.add(max_tokens)
        for state in self._states:
            if length:
                state.fork(row, length, copy)
        self.rotary.fork(row, length, copy)
        self.lengths[copy] = length
        return copy

    def remove(self, row: int) -> None:
        """Remove a sequence; its row and pages become free."""
        for state in self._states:
            state.end(row)
        self.lengths[row] = 0
        self._free.append(row)

    @contextmanager
    def lent(self, count: int) -> Iterator[list[int]]:
        """Context manager: the rows of ``count`` new sequences, which are removed when the block ends."""
        rows: list[int] = []
        try:
            rows += (self.add() for _ in range(count))
            yield rows
        finally:
            for row in rows:
                self.remove(row)

    def retire(self, row: int) -> None:
        """Defer ``remove`` to the next ``add``: for finalizers, which may run in the middle of any other method."""
        self._retired.append(row)

    def _check_prefix(self, row: int, length: int) -> None:
        if not 0 <= length <= self.lengths[row]:
            raise UsageError(f"cannot cut the sequence to {length} tokens: it has {self.lengths[row]}")
        if length == self.lengths[row]:
            return
        lost = [state.inputs for state in self._states if not state.can_truncate(row, length)]
        if lost:
            raise UsageError(
                f"cannot cut the sequence of {self.lengths[row]} tokens to {length}: its state of fewer tokens is gone",
                where=[f"the state of {', '.join(arrays)}" for arrays in lost],
                hint="cut it to 0 tokens and begin anew",
            )


def _bytes_per_slot(spec: RecurrentSpec) -> int:
    return sum(prod(array.shape) * dtype_of(array.dtype).itemsize for array in spec.arrays)


def _bytes_per_token(spec: PagedKVSpec) -> int:
    vectors = (spec.head_dim + (spec.v_head_dim or 0)) * dtype_of(spec.dtype).itemsize
    scales = 2 * dtype_of(spec.scale_dtype).itemsize if spec.scale_dtype else 0
    return spec.num_hidden_layers * spec.num_key_value_heads * (vectors + scales)
