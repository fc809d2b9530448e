"""The simulator's counts for small kernels, against known values."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler.sim import Counts
from tests.compiler.sim.kernels import launch, ptx


def global_loads(stride: int, width: int = 4) -> Counts:
    code = f"mul.wide.u32 %rd1, %t, {stride}; add.s64 %rd1, %rd0, %rd1;"
    loads = {4: "ld.global.b32 %r0, [%rd1];", 16: "ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%rd1];"}
    return launch(ptx(code + loads[width]), np.zeros(16384, "u1"), block=64)


@pytest.mark.parametrize(
    "stride, width, sectors", [(4, 4, 8), (0, 4, 2), (32, 4, 64), (128, 4, 64), (16, 16, 32), (8, 4, 16)]
)
def test_sectors_of_a_load(stride, width, sectors):
    counts = global_loads(stride, width)
    assert (counts.global_load_requests, counts.global_load_sectors) == (2, sectors)
    assert counts.global_bytes_read == 64 * width
    assert counts.distinct_bytes_read == (64 * width if stride else 4)


@pytest.mark.parametrize("stride, conflicts", [(4, 0), (0, 0), (8, 1), (128, 31), (132, 0)])
def test_bank_conflicts_of_stores(stride, conflicts):
    code = f".shared .align 16 .b8 tile[4352]; mov.b32 %r0, tile; mul.lo.u32 %r1, %t, {stride}; add.u32 %r0, %r0, %r1;"
    access = "red.shared.add.u32 [%r0], 1;" if stride == 0 else "st.shared.b32 [%r0], 1;"
    start = "setp.eq.u32 %p0, %t, 0; @%p0 st.shared.b32 [tile], 0; bar.sync 0;" if stride == 0 else ""
    assert launch(ptx(code + start + access, 0)).bank_conflicts == conflicts


def test_vectors_of_16_bytes_go_in_four_passes():
    code = ".shared .align 16 .b8 tile[512]; mov.b32 %r0, tile; shl.b32 %r1, %t, 4; add.u32 %r0, %r0, %r1;"
    counts = launch(ptx(code + "st.shared.v4.b32 [%r0], {%t, %t, %t, %t};", 0))
    assert (counts.ideal_wavefronts, counts.bank_conflicts) == (4, 0)


def test_instructions_are_counted_per_warp():
    code = "setp.lt.u32 %p0, %t, 8; @!%p0 bra END; add.u32 %r0, %t, 1; add.u32 %r0, %t, 2; END: bar.sync 0;"
    counts = launch(ptx(code, 0), block=96, grid=50)
    assert counts.by_opcode["add"] == 2 * 50 and counts.by_opcode["setp"] == 3 * 50
    assert counts.warp_instructions == sum(counts.by_opcode.values())
    assert counts.barriers == 50
    both = counts + counts
    assert both.barriers == 100 and both.by_opcode["add"] == 200
