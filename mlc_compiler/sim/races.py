"""Data races, by vector clocks of warps.

Each warp has a clock that advances at its synchronizations, and knows which clock of every other warp it has
synchronized with (Flanagan and Freund, FastTrack, PLDI 2009, at the granularity of warps). An access of another warp is
ordered before one's own if its clock is known. Within a warp, another thread's access is ordered if the warp
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
SEVERAL = 32  # in place of a lane: more than one lane of the warp


class Clocks:
    """Vector clocks of the warps of ``blocks`` blocks. known[w, v]: what warp w knows of warp v of its block."""

    def __init__(self, blocks: int, warps: int):
        self.blocks, self.warps = blocks, warps
        self._own = np.ones((blocks, warps), np.int32)
        self._seen = np.zeros((blocks, warps, warps), np.int32)
        self.version = 0  # changes with every clock and all that is known

    @property
    def own(self) -> Array:
        """``[blocks * warps]``: the clock of each warp."""
        return self._own.reshape(-1)

    @property
    def seen(self) -> Array:
        """``[blocks * warps, warps]``: accesses of warp v up to this clock are ordered before what comes next."""
        return self._seen.reshape(-1, self.warps)

    def synchronize(self, participants: Array) -> None:
        """A barrier of the warps ``participants`` [blocks, warps]: each block's own."""
        self.join(participants, self.collect(participants))

    def collect(self, participants: Array) -> Array:
        """``[blocks, warps]``: what the participants of each block know together, their own past included."""
        diagonal = np.arange(self.warps)
        full = self._seen.copy()
        full[:, diagonal, diagonal] = self._own
        return np.where(participants[:, :, None], full, 0).max(axis=1)

    def join(self, participants: Array, known: Array) -> None:
        """The participants learn ``known`` [blocks, warps] and start a new interval."""
        joined = np.maximum(self._seen, known[:, None, :])
        self._seen = np.where(participants[:, :, None], joined, self._seen)
        self.advance(participants)

    def release(self, warps: Array) -> Array:
        """``[n, warps of a block]``: what each of ``warps`` knows, itself included; its next accesses are not."""
        self.version += 1
        known = self.seen[warps]
        known[np.arange(len(warps)), warps % self.warps] = self.own[warps]
        self.own[warps] += 1
        return known

    def learn(self, warps: Array, known: Array) -> None:
        """Orders the accesses ``known`` [warps of a block] before what ``warps`` do next."""
        self.version += 1
        self.seen[warps] = np.maximum(self.seen[warps], known)

    def advance(self, participants: Array) -> None:
        """Accesses of a warp so far are ordered before its later ones, between its threads too."""
        self.version += 1
        diagonal = np.arange(self.warps)
        own = self._seen[:, diagonal, diagonal]
        self._seen[:, diagonal, diagonal] = np.where(participants, self._own, own)
        self._own = self._own + participants


class Order(Protocol):
    """What orders accesses of different blocks."""

    def ordered(self, codes: Array, blocks: Array) -> Array: ...


class Accessors:
    """Who accesses: for each of n threads its warp, its number in the block, its block, and an access code."""

    def __init__(self, clocks: Clocks, lanes: Array, block: Array, order: Order | None = None):
        per_block = clocks.warps * 32
        self.warp = lanes >> 5
        self.thread = lanes % per_block
        self.warp_in_block = self.thread >> 5
        self.block = block
        clock = clocks.own[self.warp].astype(np.int64)
        self.clock = clock
        self.code = ((block + 1) << BLOCK_SHIFT) | (clock << THREAD_BITS) | self.thread
        self.seen = clocks.seen
        self.order = order

    def unordered(self, code: Array) -> Array:
        """Whether the accesses ``code`` [n, k] (0: none) are of other threads and not ordered before ours."""
        thread = code & THREAD_MASK
        clock = (code >> THREAD_BITS) & CLOCK_MASK
        known = clock <= self.seen[self.warp[:, None], thread >> 5]
        same_block = (code >> BLOCK_SHIFT) == self.block[:, None] + 1
        bad = (code != 0) & ~(same_block & (known | (thread == self.thread[:, None])))
        if self.order is not None and bad.any():
            bad &= same_block | ~self.order.ordered(code, self.block)
        return bad


class Conflict(Exception):
    """Access ``position`` of the instruction conflicts with an earlier one, given by its code."""

    def __init__(self, position: int, code: int, kind: str):
        super().__init__(kind)
        self.position, self.code, self.kind = position, code, kind


def _raise_first(bad: Array, codes: Array, kind: str) -> None:
    if bad.any():
        row, column = np.unravel_index(int(np.argmax(bad)), bad.shape)
        raise Conflict(int(row), int(codes[row, column]), kind)


class ReadTable:
    """The last reads of every granule by each warp: exact, ``[granules, warps]``. For shared memory."""

    def __init__(self, granules: int, warps: int):
        self.last = np.zeros((granules, warps), np.int32)  # clock << 6 | lane, or SEVERAL

    def check(self, who: Accessors, granules: Array, kind: str) -> None:
        """Raises Conflict where a read by another thread is not ordered before an access of ``granules`` [n, k]."""
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
        warp = np.broadcast_to(who.warp_in_block[:, None], granules.shape)
        clock = (who.clock << 6).astype(np.int32)[:, None]
        mine = clock | (who.thread & 31).astype(np.int32)[:, None]
        old = self.last[granules, warp]
        self.last[granules, warp] = mine
        several = (self.last[granules, warp] != mine) | ((old >= clock) & (old != mine))
        if several.any():
            self.last[granules[several], warp[several]] = np.broadcast_to(clock | SEVERAL, granules.shape)[several]


class LastReader:
    """One reader of every granule, and whether several blocks read it. For global memory."""

    def __init__(self, granules: int) -> None:
        self.last = np.zeros(granules, np.int64)
        self.other = np.zeros(granules, np.int64)  # a reader of another block

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
    """Who accessed each granule of ``width`` bytes of one storage."""

    def __init__(self, nbytes: int, width: int, warps: int | None):
        """warps: those of a block, for shared memory; None for global memory."""
        self.width = width
        self.granules = nbytes // width
        self._warps = warps
        self.writer = np.zeros(self.granules, np.int64)
        self.written = False  # whether ``writer`` has any
        self.readers = self._table()
        self.atomics: ReadTable | LastReader | None = None
        self.copied: Array | None = None  # granules that an asynchronous copy wrote last

    def _table(self) -> ReadTable | LastReader:
        return LastReader(self.granules) if self._warps is None else ReadTable(self.granules, self._warps)

    def _granules(self, offsets: Array, width: int) -> Array:
        return (offsets // self.width)[:, None] + np.arange(max(width // self.width, 1))

    def read(self, who: Accessors, offsets: Array, width: int) -> None:
        """Raises Conflict where a write by another thread is not ordered before the read."""
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
        """Says that the last write was an asynchronous copy's."""
        if self.copied is None:
            self.copied = np.zeros(self.granules, bool)
        self.copied[self._granules(offsets, width)] = True

    def stored_by_threads(self, offsets: Array, width: int) -> Array:
        """``[n, k]``: codes of the last writes, 0 where there is none or an asynchronous copy made it."""
        granules = self._granules(offsets, width)
        codes = self.writer[granules]
        return codes if self.copied is None else np.where(self.copied[granules], 0, codes)

    def update(self, who: Accessors, offsets: Array, width: int) -> None:
        """An atomic access: it conflicts with plain reads and writes only."""
        granules = self._granules(offsets, width)
        self._check_write(who, granules)
        if self.atomics is None:
            self.atomics = self._table()
        self.atomics.note(who, granules)

    @property
    def bytes_read(self) -> int:
        """Bytes in granules that were read plainly; global memory only."""
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
