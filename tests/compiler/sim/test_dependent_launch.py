"""Programmatic dependent launch: the memory that a kernel may access before it waits for the previous kernels."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler.sim import Counts, Memory, SimulationError, parse_ptx, run
from tests.compiler.sim.kernels import ptx

COPY = """
shl.b32 %r1, %t, 2; cvt.u64.u32 %rd9, %r1; add.u64 %rd8, %rd0, %rd9; add.u64 %rd9, %rd1, %rd9;
griddepcontrol.launch_dependents;
{early} ld.global.b32 %r2, [%rd8]; {late} st.global.b32 [%rd9], %r2;
"""
WAIT = "griddepcontrol.wait;"
IN_ORDER = COPY.format(early=WAIT, late="")
READS_EARLY = COPY.format(early="", late=WAIT)


class Chain:
    """Launches of kernels that copy 32 words from one of several arrays to another."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.arrays = [self.memory.allocate(np.full(32, i, np.uint32), f"array{i}") for i in range(3)]

    def copy(self, code: str, source: int, to: int) -> Counts:
        kernel = parse_ptx(ptx(code, 2)).kernels["k"]
        return run(kernel, (1,), (32,), [self.arrays[source], self.arrays[to]], self.memory)

    def fails(self, code: str, source: int, to: int, message: str) -> None:
        with pytest.raises(SimulationError, match=message) as caught:
            self.copy(code, source, to)
        assert caught.value.hint == "put griddepcontrol.wait before the access"


def test_what_a_kernel_before_wrote_is_read_after_the_wait() -> None:
    chain = Chain()
    chain.copy(IN_ORDER, 0, 1)
    chain.copy(IN_ORDER, 1, 2)
    chain.fails(READS_EARLY, 1, 2, "read of array1 address 0x[0-9a-f]+, which a kernel before this one may still write")
    chain.copy(READS_EARLY, 0, 2)  # like a weight: no kernel writes it
    chain.memory.settle()
    chain.copy(READS_EARLY, 1, 2)


def test_nothing_is_stored_before_the_wait() -> None:
    Chain().fails(COPY.format(early="", late=""), 0, 1, "store to array1 .* may still read")
    Chain().copy(COPY.format(early="", late="").replace("griddepcontrol.launch_dependents;", ""), 0, 1)


def test_each_thread_waits_for_itself() -> None:
    half = "setp.lt.u32 %p1, %t, 16; @%p1 griddepcontrol.wait;"
    chain = Chain()
    chain.copy(IN_ORDER, 0, 1)
    chain.fails(COPY.format(early=half, late=""), 1, 2, "read of array1")


def test_a_prefetch_names_whole_vectors_of_an_allocation() -> None:
    prefetch = "cp.async.bulk.prefetch.L2.global [%rd0{}], {}; griddepcontrol.wait;"
    for place, nbytes, message in (("", 128, None), ("+16", 128, "out of bounds"), ("", 24, "multiple of 16")):
        code = prefetch.format(place, nbytes)
        if message is None:
            assert Chain().copy(code, 0, 1).prefetched_bytes == 32 * nbytes
        else:
            with pytest.raises(SimulationError, match=message):
                Chain().copy(code, 0, 1)
