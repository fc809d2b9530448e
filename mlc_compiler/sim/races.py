"""Data race detection by vector clocks of warps.

Each warp has a clock that advances at its synchronizations, and knows up to which clock of every other warp it has
synchronized (Flanagan and Freund, FastTrack, PLDI 2009, at the granularity of warps). An access of another warp is
ordered before the current one if its clock is known. Within a warp, another thread's access is ordered if the warp has
synchronized since. Different blocks are never ordered, except for accesses that are atomic on both sides.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
THREAD_BITS, BLOCK_SHIFT = 10, 34
THREAD_MASK = (1 << THREAD_BITS) - 1
CLOCK_MASK = (1 << (BLOCK_SHIFT - THREAD_BITS)) - 1
SEVERAL = 32  # instead of a lane: several lanes of the warp


class Clocks:
    """Vector clocks of the warps of ``blocks`` blocks. known[w, v]: the clock of warp v that warp w knows."""

    def __init__(self, blocks: int, warps: int):
        self.blocks, self.warps = blocks, warps
        self._own = np.ones((blocks, warps), np.int32)
        self._seen = np.zeros((blocks, warps, warps), np.int32)
        self.version = 0  # incremented whenever clocks or knowledge change

    @property
    def own(self) -> Array:
        """The clock of each warp, [blocks * warps]."""
        return self._own.reshape(-1)

    @property
    def seen(self) -> Array:
        """Accesses of warp v up to this clock are ordered before the warp's next ones; [blocks * warps, warps]."""
        return self._seen.reshape(-1, self.warps)

    def synchronize(self, participants: Array) -> None:
        """Synchronize the warps ``participants`` [blocks, warps] of each block at a barrier."""
        self.join(participants, self.collect(participants))

    def collect(self, participants: Array) -> Array:
        """The joined clocks of each block's participants, including their own accesses so far: [blocks, warps]."""
        diagonal = np.arange(self.warps)
        full = self._seen.copy()
        full[:, diagonal, diagonal] = self._own
        return np.where(participants[:, :, None], full, 0).max(axis=1)

    def join(self, participants: Array, known: Array) -> None:
        """Join ``known`` [blocks, warps] into the participants' clocks and start a new interval."""
        joined = np.maximum(self._seen, known[:, None, :])
        self._seen = np.where(participants[:, :, None], joined, self._seen)
        self.advance(participants)

    def release(self, warps: Array) -> Array:
        """The clocks known to ``warps``, own accesses included, [n, warps of a block]; starts new intervals of them."""
        self.version += 1
        known = self.seen[warps]
        known[np.arange(len(warps)), warps % self.warps] = self.own[warps]
        self.own[warps] += 1
        return known

    def learn(self, warps: Array, known: Array) -> None:
        """Order the accesses ``known`` [warps of a block] before the next accesses of ``warps``."""
        self.version += 1
        self.seen[warps] = np.maximum(self.seen[warps], known)

    def advance(self, participants: Array) -> None:
        """Order the accesses of each participating warp so far before its later ones, also between its threads."""
        self.version += 1
        diagonal = np.arange(self.warps)
        own = self._seen[:, diagonal, diagonal]
        self._seen[:, diagonal, diagonal] = np.where(participants, self._own, own)
        self._own = self._own + participants


class Order(Protocol):
    """Interface of an order between accesses of different blocks."""

    def ordered(self, codes: Array, blocks: Array) -> Array: ...


class Accessors:
    """The accessing threads: for each of n threads its warp, its index in the block, its block, and its access code."""

    def __init__(self, clocks: Clocks, lanes: Array, block: Array, order: Order | None = None):
        per_block = clocks.warps * 32
        self.warp = lanes >> 5
        self.thread = lanes % per_block
        self.warp_in_block = self.thread >> 5
        self.block = block
        clock = clocks.own[self.warp].astype(np.int64)
        self.clock = clock
        self.code = ((block + 1) << BLOCK_SHIFT) | (clock << THREAD_BITS) | self.thread
        self.read_clock = (clock << 6).astype(np.int32)[:, None]
        self.read = self.read_clock | (self.thread & 31).astype(np.int32)[:, None]  # an entry of ``ReadTable``
        self.seen = clocks.seen
        self.order = order

    def unordered(self, code: Array) -> Array:
        """Whether the accesses ``code`` [n, k] (0: none) are by other threads and unordered with the current ones."""
        thread = code & THREAD_MASK
        clock = (code >> THREAD_BITS) & CLOCK_MASK
        known = clock <= self.seen[self.warp[:, None], thread >> 5]
        same_block = (code >> BLOCK_SHIFT) == self.block[:, None] + 1
        bad = (code != 0) & ~(same_block & (known | (thread == self.thread[:, None])))
        if self.order is not None and bad.any():
            bad &= same_block | ~self.order.ordered(code, self.block)
        return bad


class Conflict(Exception):
    """Access ``position`` of an instruction conflicts with an earlier access, given by its code."""

    def __init__(self, position: int, code: int, kind: str):
        super().__init__(kind)
        self.position, self.code, self.kind = position, code, kind


def _raise_first(bad: Array, codes: Array, kind: str) -> None:
    if bad.any():
        row, column = np.unravel_index(int(np.argmax(bad)), bad.shape)
        raise Conflict(int(row), int(codes[row, column]), kind)


class ReadTable:
    """The last read of every granule by each warp, exact: [granules, warps]. For shared memory."""

    def __init__(self, granules: int, warps: int):
        self.last = np.zeros((granules, warps), np.int32)  # clock << 6 | lane, or SEVERAL

    def check(self, who: Accessors, granules: Array, kind: str) -> None:
        """Raise Conflict when another thread's read is not ordered before an access of ``granules`` [n, k]."""
        last = self.last[granules]  # [n, k, warps]
        late = (last >> 6) > who.seen[who.warp][:, None, :]
        if not late.any():
            return
        own = np.arange(last.shape[2]) == who.warp_in_block[:, None, None]
        mine = own & ((last & 63) == (who.thread & 31)[:, None, None])
        bad = late & ~mine
        if bad.any():
            row, column, warp = (int(i) for i in np.argwhere(bad)[0])
            entry = int(last[row, column, warp])
            lane = entry & 63
            if lane == SEVERAL:
                lane = 0 if int(who.thread[row]) & 31 else 1
            code = (int(who.block[row]) + 1) << BLOCK_SHIFT | (entry >> 6) << THREAD_BITS | warp * 32 + lane
            raise Conflict(row, code, kind)

    def note(self, who: Accessors, granules: Array) -> None:
        flat = self.last.ravel()
        at = granules * self.last.shape[1] + who.warp_in_block[:, None]
        old = flat[at]
        flat[at] = who.read
        changed = (old != who.read) & (old >= who.read_clock)
        several = (flat[at] != who.read) | changed
        if several.any():
            flat[at[several]] = np.broadcast_to(who.read_clock | SEVERAL, at.shape)[several]


class LastReader:
    """The last reader of every granule, and one of another block. For global memory."""

    def __init__(self, granules: int) -> None:
        self.last = np.zeros(granules, np.int64)
        self.other = np.zeros(granules, np.int64)  # a reader in another block

    def check(self, who: Accessors, granules: Array, kind: str) -> None:
        for codes in (self.last[granules], self.other[granules]):
            _raise_first(who.unordered(codes), codes, kind)

    def note(self, who: Accessors, granules: Array) -> None:
        old = self.last[granules]
        elsewhere = (old != 0) & ((old >> BLOCK_SHIFT) != who.block[:, None] + 1)
        if elsewhere.any():
            self.other[granules[elsewhere]] = old[elsewhere]
        mine = np.broadcast_to(who.code[:, None], granules.shape)
        self.last[granules] = mine
        lost = (self.last[granules] >> BLOCK_SHIFT) != (mine >> BLOCK_SHIFT)
        if lost.any():
            self.other[granules[lost]] = mine[lost]


class Shadow:
    """The last accesses of each granule of ``width`` bytes of a storage."""

    def __init__(self, nbytes: int, width: int, warps: int | None):
        """Initialize the shadow. warps: warps per block for shared memory; None for global memory."""
        self.width = width
        self.granules = nbytes // width
        self._warps = warps
        self.writer = np.zeros(self.granules, np.int64)
        self.written = False  # whether any granule has a writer
        self.readers = self._table()
        self.atomics: ReadTable | LastReader | None = None
        self.copied: Array | None = None  # granules last written by an asynchronous copy

    def _table(self) -> ReadTable | LastReader:
        return LastReader(self.granules) if self._warps is None else ReadTable(self.granules, self._warps)

    def _granules(self, offsets: Array, width: int) -> Array:
        return (offsets // self.width)[:, None] + np.arange(max(width // self.width, 1))

    def read(self, who: Accessors, offsets: Array, width: int) -> None:
        """Record a read. Raises Conflict when another thread's write is not ordered before it."""
        granules = self._granules(offsets, width)
        self._check_writer(who, granules, "read of what another thread writes")
        if self.atomics is not None:
            self.atomics.check(who, granules, "read of what another thread updates")
        self.readers.note(who, granules)

    def write(self, who: Accessors, offsets: Array, width: int) -> None:
        granules = self._granules(offsets, width)
        self._check_write(who, granules)
        if self.atomics is not None:
            self.atomics.check(who, granules, "write to what another thread updates")
        self.writer[granules] = who.code[:, None]
        self.written = True
        codes = self.writer[granules]
        _raise_first(codes != who.code[:, None], codes, "write to what another thread writes")
        if self.copied is not None:
            self.copied[granules] = False

    def mark_copied(self, offsets: Array, width: int) -> None:
        """Record that the last write was made by an asynchronous copy."""
        if self.copied is None:
            self.copied = np.zeros(self.granules, bool)
        self.copied[self._granules(offsets, width)] = True

    def stored_by_threads(self, offsets: Array, width: int) -> Array:
        """Codes of the last writes by threads, [n, k]; 0 without one, or for an asynchronous copy."""
        granules = self._granules(offsets, width)
        codes = self.writer[granules]
        return codes if self.copied is None else np.where(self.copied[granules], 0, codes)

    def update(self, who: Accessors, offsets: Array, width: int) -> None:
        """Record an atomic access, which conflicts only with non-atomic reads and writes."""
        granules = self._granules(offsets, width)
        self._check_write(who, granules)
        if self.atomics is None:
            self.atomics = self._table()
        self.atomics.note(who, granules)

    @property
    def bytes_read(self) -> int:
        """Bytes of granules read non-atomically; for global memory only."""
        return int(np.count_nonzero(self.readers.last)) * self.width

    @property
    def bytes_written(self) -> int:
        return int(np.count_nonzero(self.writer)) * self.width

    def _check_writer(self, who: Accessors, granules: Array, kind: str) -> None:
        if self.written:
            codes = self.writer[granules]
            _raise_first(who.unordered(codes), codes, kind)

    def _check_write(self, who: Accessors, granules: Array) -> None:
        self._check_writer(who, granules, "write to what another thread writes")
        self.readers.check(who, granules, "write to what another thread reads")
