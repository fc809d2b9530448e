"""Statistics of a launch: instructions, memory requests, bank conflicts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
BANK_BITS = 5
BANKS = 1 << BANK_BITS


@dataclass
class Counts:
    """Counters summed over the warps of one or several launches.

    warp_instructions: instructions times the warps that executed them, in total and by the opcode's first part.
    global_{load,store}_requests: warp instructions that access global memory; ..._sectors: the 32-byte sectors that
    they access, each counted once per request; global_bytes_{read,written}: bytes that threads requested;
    distinct_bytes_{read,written}: bytes that at least one thread accessed, in granules of the kernel's narrowest
    access (0 without race detection); accessed: the bytes of global memory that
    threads requested, by the allocation's name. prefetched_bytes: bytes of bulk prefetches to the L2 cache.
    shared_requests, shared_wavefronts, ideal_wavefronts: passes through the banks of shared memory and the
    passes that the same accesses need without conflicts. barriers: block barriers, once per block.
    """

    warp_instructions: int = 0
    by_opcode: Counter[str] = field(default_factory=Counter)
    global_load_requests: int = 0
    global_load_sectors: int = 0
    global_store_requests: int = 0
    global_store_sectors: int = 0
    global_bytes_read: int = 0
    global_bytes_written: int = 0
    distinct_bytes_read: int = 0
    distinct_bytes_written: int = 0
    accessed: Counter[str] = field(default_factory=Counter)
    prefetched_bytes: int = 0
    shared_requests: int = 0
    shared_wavefronts: int = 0
    ideal_wavefronts: int = 0
    barriers: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    @property
    def bank_conflicts(self) -> int:
        """Shared-memory wavefronts beyond the ideal number."""
        return self.shared_wavefronts - self.ideal_wavefronts

    def global_access(self, addresses: Array, warps: Array, width: int, store: bool) -> None:
        """Count one instruction's accesses of ``width`` bytes; ``warps`` ascend."""
        requests = 1 + int(np.count_nonzero(warps[1:] != warps[:-1]))
        keys = np.sort((warps.astype(np.int64) << 44) | (addresses >> 5))
        sectors = (1 + int(np.count_nonzero(keys[1:] != keys[:-1]))) * max(width // 32, 1)
        if store:
            self.global_store_requests += requests
            self.global_store_sectors += sectors
            self.global_bytes_written += len(addresses) * width
        else:
            self.global_load_requests += requests
            self.global_load_sectors += sectors
            self.global_bytes_read += len(addresses) * width

    def shared_access(self, offsets: Array, lanes: Array, width: int) -> None:
        """Count one instruction's accesses of ``width`` bytes; 8 and 16 bytes are 2 and 4 passes by parts of a warp."""
        passes = max(width // 4, 1)
        rows = lanes // (32 // passes)
        words = (offsets >> 2)[:, None] + np.arange(passes)
        self.shared_passes(rows, words)

    def shared_passes(self, rows: Array, words: Array) -> None:
        """Count passes: ``words[i]`` are the 4-byte words that thread i accesses in pass ``rows[i]``; passes ascend."""
        keys = np.sort(((rows.astype(np.int64) << 32)[:, None] | words).ravel())
        keys = keys[np.concatenate(([True], keys[1:] != keys[:-1]))]
        first, last = int(rows[0]), int(rows[-1])
        banks = (((keys >> 32) - first) << BANK_BITS) | (keys & (BANKS - 1))
        per_bank = np.bincount(banks, minlength=(last - first + 1) << BANK_BITS)
        wavefronts = per_bank.reshape(-1, BANKS).max(axis=1)
        ideal = int(np.count_nonzero(wavefronts))
        self.shared_requests += ideal
        self.ideal_wavefronts += ideal
        self.shared_wavefronts += int(wavefronts.sum())
