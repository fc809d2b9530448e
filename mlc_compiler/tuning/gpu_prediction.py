"""Predicted times of kernels on a GPU, from counts of their work.

Nothing has run: predictions rank schedules. Hits in the L2 cache are assumed for all but the first access to a byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import hypot, log2

import numpy as np

from ..backends.cuda.images import Resources
from ..backends.cuda.machine import (
    ARCHITECTURES,
    MAX_THREADS_PER_BLOCK,
    REGISTERS_PER_THREAD,
    WARP,
    Gpu,
    resident_blocks,
)

LAUNCH_SECONDS = 1.85e-6
"""Of a kernel of a CUDA graph until its reads are at full rate, as published for an H100."""
SCHEDULERS = 4  # of a multiprocessor; each issues one warp instruction per clock
L2_BYTES_PER_CLOCK = 32  # of a multiprocessor
OTHER_REGISTERS = 24  # per thread, for addresses and counters


@dataclass
class KernelAccount:
    """The estimated work of a kernel.

    blocks: in the grid. threads, shared_bytes: per block. registers: per thread. memory_bytes: of device memory, each
    accessed byte once. Per block: l2_bytes, in sectors of 32 bytes; shared_passes through the banks of shared memory or
    the L1 cache; instructions and float_instructions of warps; mma_flop on tensor cores. waits: clocks that a thread
    waits for loads and barriers. local_bytes: of a thread's arrays that are in memory, since their indices vary, and of
    spilled registers.
    """

    blocks: int = 1
    threads: int = 1
    shared_bytes: int = 0
    registers: int = OTHER_REGISTERS
    memory_bytes: float = 0.0
    l2_bytes: float = 0.0
    shared_passes: float = 0.0
    instructions: float = 0.0
    float_instructions: float = 0.0
    mma_flop: float = 0.0
    waits: float = 0.0
    local_bytes: int = 0

    def problem(self, gpu: Gpu) -> str:
        """Why a GPU cannot run the kernel, or keeps values of its threads in memory instead of registers; or empty."""
        if self.threads > MAX_THREADS_PER_BLOCK:
            return f"{self.threads} threads per block; at most {MAX_THREADS_PER_BLOCK}"
        if self.shared_bytes > gpu.shared_bytes:
            return f"{self.shared_bytes} bytes of shared memory per block; at most {gpu.shared_bytes}"
        if self.local_bytes:
            return f"{self.local_bytes} bytes of a thread are not in registers"
        if self.registers > REGISTERS_PER_THREAD or not self._resident(gpu):
            return f"about {self.registers} registers per thread of {self.threads}, which spill"
        return ""

    def assembled(self, found: Resources) -> KernelAccount:
        """The account with the assembler's resources instead of estimates."""
        return replace(self, registers=found.registers, local_bytes=found.stack_bytes + found.spill_bytes)

    def _resident(self, gpu: Gpu) -> int:
        return resident_blocks(self.registers, self.shared_bytes, self.threads, gpu)

    def clocks(self, gpu: Gpu) -> tuple[float, ...]:
        """Clocks of the busiest multiprocessor that each of its units needs, and those that its blocks wait."""
        row = ARCHITECTURES[gpu.arch]
        blocks = -(-self.blocks // gpu.multiprocessors)
        of_a_block = (
            self.l2_bytes / L2_BYTES_PER_CLOCK,
            self.shared_passes,
            max(self.instructions / SCHEDULERS, self.float_instructions * WARP / row.lanes),
            self.mma_flop / row.mma_flop,
        )
        waves = -(-blocks // max(self._resident(gpu), 1))
        return (*(blocks * clocks for clocks in of_a_block), waves * self.waits)

    def seconds(self, gpu: Gpu) -> float:
        """Predicted time: launch, and the units' times, which overlap in part: the root of the sum of their squares."""
        memory = self.memory_bytes / (gpu.memory_gb_per_s * 1e9)
        return LAUNCH_SECONDS + hypot(memory, *(clocks / (gpu.clock_mhz * 1e6) for clocks in self.clocks(gpu)))


@dataclass(frozen=True)
class GpuAccount:
    """The kernels that a call of a function launches, and the GPU. Its times are predictions: nothing has run.

    numbers: the position of each among all kernels of the function, some of which are in branches not taken.
    """

    kernels: tuple[KernelAccount, ...]
    gpu: Gpu
    numbers: tuple[int, ...]

    @property
    def problem(self) -> str:
        """Why the function cannot run, or spills registers; empty otherwise."""
        return next((found for kernel in self.kernels if (found := kernel.problem(self.gpu))), "")

    @property
    def thread_instructions(self) -> float:
        """Instructions of all threads, each counted once per thread."""
        return sum(kernel.blocks * kernel.instructions * WARP for kernel in self.kernels)

    def assembled(self, resources: Sequence[Resources]) -> GpuAccount:
        """The account with the assembler's resources instead of estimates. resources: of all kernels of a function."""
        pairs = zip(self.kernels, self.numbers, strict=True)
        return replace(self, kernels=tuple(kernel.assembled(resources[number]) for kernel, number in pairs))

    @property
    def seconds(self) -> float:
        """The predicted seconds of a call."""
        return sum(kernel.seconds(self.gpu) for kernel in self.kernels)

    @property
    def features(self) -> list[float]:
        """log2 of one plus the time of each unit, in clocks, and log2 of the predicted nanoseconds."""
        units = np.sum([kernel.clocks(self.gpu) for kernel in self.kernels], axis=0)
        return [*(log2(1.0 + unit) for unit in units), log2(1.0 + self.seconds * 1e9)]
