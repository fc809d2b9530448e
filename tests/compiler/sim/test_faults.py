"""Planted faults: each is reported, with its location."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler.sim import Memory, SimulationError, parse_ptx, run
from tests.compiler.sim.kernels import launch, ptx

SHARED = ".shared .align 16 .b8 tile[512];"
MINE = """
mov.b32 %r0, tile;
shl.b32 %r1, %t, 2;
add.u32 %r2, %r0, %r1;
"""
NEIGHBOUR = """
xor.b32 %r3, %r1, 128;
add.u32 %r3, %r0, %r3;
"""


def fails(text: str, *arguments, message: str, **options) -> SimulationError:
    with pytest.raises(SimulationError, match=message) as caught:
        launch(text, *arguments, **options)
    return caught.value


def test_missing_barrier():
    exchange = SHARED + MINE + NEIGHBOUR + "st.shared.b32 [%r2], %t; {} ld.shared.b32 %r4, [%r3];"
    launch(ptx(exchange.format("bar.sync 0;"), 0), block=64)
    error = fails(ptx(exchange.format(""), 0), block=64, message="data race at shared address 0x80")
    assert "thread (0, 0, 0) of block (0, 0, 0) and thread (32, 0, 0)" in error.message
    assert "read of what another thread writes" in error.message
    assert error.where[0] == "kernel k" and error.where[1].startswith("ld.shared.b32 %r4, [%r3] (line")
    assert error.where[2] == "thread (0, 0, 0) of block (0, 0, 0)"


def test_missing_barrier_before_a_buffer_is_used_again():
    code = SHARED + MINE + NEIGHBOUR
    code += "st.shared.b32 [%r2], %t; bar.sync 0; ld.shared.b32 %r4, [%r3]; {} st.shared.b32 [%r2], 1;"
    launch(ptx(code.format("bar.sync 0;"), 0), block=64)
    fails(ptx(code.format(""), 0), block=64, message="write to what another thread reads")


def test_threads_of_a_warp_are_ordered_by_a_warp_barrier_or_a_shuffle():
    code = (
        SHARED
        + MINE
        + "xor.b32 %r3, %r1, 4; add.u32 %r3, %r0, %r3; st.shared.b32 [%r2], %t; {} ld.shared.b32 %r4, [%r3];"
    )
    launch(ptx(code.format("bar.warp.sync -1;"), 0))
    launch(ptx(code.format("shfl.sync.bfly.b32 %r5, %t, 1, 31, -1;"), 0))
    fails(ptx(code.format(""), 0), message="data race")


def test_a_warp_barrier_orders_no_other_warp():
    code = SHARED + MINE + NEIGHBOUR + "st.shared.b32 [%r2], %t; bar.warp.sync -1; ld.shared.b32 %r4, [%r3];"
    fails(ptx(code, 0), block=64, message="data race")


def test_two_threads_write_one_element():
    fails(ptx(SHARED + "mov.b32 %r0, tile; st.shared.b32 [%r0], %t;", 0), message="write to what another thread writes")


def test_atomic_updates_race_with_plain_accesses_only():
    code = SHARED + "mov.b32 %r0, tile; setp.eq.u32 %p0, %t, 0; @%p0 st.shared.b32 [%r0], 5; bar.sync 0;"
    code += "atom.shared.add.u32 %r1, [%r0], 1; {} ld.shared.b32 %r2, [%r0]; add.s64 %rd1, %rd0, 0;"
    out = np.zeros(1, "u4")
    stores = "@%p0 st.global.b32 [%rd0], %r2;"
    launch(ptx(code.format("bar.sync 0;") + stores), out, block=64)
    assert out[0] == 69
    fails(ptx(code.format("") + stores), out, block=64, message="read of what another thread updates")


def test_out_of_bounds():
    address = "mul.wide.u32 %rd1, %t, 4; add.s64 %rd2, %rd0, %rd1; {}"
    data = np.zeros(31, "f4")
    error = fails(ptx(address.format("ld.global.f32 %f0, [%rd2];")), data, message="out of bounds: 4 bytes at global")
    assert "124 bytes" in error.message and error.where[2] == "thread (31, 0, 0) of block (0, 0, 0)"
    fails(ptx(address.format("st.global.f32 [%rd2], 0f00000000;")), data, message="out of bounds")
    fails(ptx(SHARED + "st.shared.b32 [tile+512], 1;", 0), message="out of bounds: 4 bytes at shared address 0x200")
    fails(ptx("mov.b64 %rd1, 64; ld.global.b32 %r0, [%rd1];", 0), message="out of bounds")


def test_misaligned_vector():
    code = "add.s64 %rd1, %rd0, 8; ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%rd1];"
    fails(ptx(code), np.zeros(16, "f4"), message="misaligned access: 16 bytes at address 0x200000000008", block=1)


def test_uninitialized_reads():
    memory = Memory()
    kernel = parse_ptx(ptx("ld.global.b32 %r0, [%rd0+4];")).kernels["k"]
    address = memory.allocate(8)
    with pytest.raises(SimulationError, match="uninitialized read of 4 bytes at global address 0x200000000004"):
        run(kernel, (1,), (1,), [address], memory)
    memory.mark_written(address, 8)
    run(kernel, (1,), (1,), [address], memory)
    fails(ptx(SHARED + "ld.shared.b32 %r0, [tile];", 0), message="uninitialized read of 4 bytes at shared", block=1)


COPY = (
    SHARED
    + MINE
    + """
mul.wide.u32 %rd1, %t, 4; add.s64 %rd1, %rd0, %rd1;
cp.async.ca.shared.global [%r2], [%rd1], 4;
cp.async.commit_group;
{}
ld.shared.b32 %r4, [%r2];
add.s32 %r4, %r4, 1;
st.global.b32 [%rd1], %r4;
"""
)


def test_missing_wait_for_a_copy():
    data = np.arange(32, dtype="u4")
    launch(ptx(COPY.format("cp.async.wait_group 0;")), data)
    np.testing.assert_array_equal(data, np.arange(32) + 1)
    fails(ptx(COPY.format("")), data, message="missing cp.async wait: shared address 0x0")
    fails(ptx(COPY.format("cp.async.wait_group 1;")), data, message="missing cp.async wait")


def test_missing_barrier_after_the_wait_for_a_copy():
    code = (
        SHARED
        + MINE
        + NEIGHBOUR
        + """
    mul.wide.u32 %rd1, %t, 4; add.s64 %rd1, %rd0, %rd1;
    cp.async.ca.shared.global [%r2], [%rd1], 4; cp.async.wait_all; {} ld.shared.b32 %r4, [%r3];
    """
    )
    launch(ptx(code.format("bar.sync 0;")), np.arange(64, dtype="u4"), block=64)
    fails(ptx(code.format("")), np.arange(64, dtype="u4"), block=64, message="data race")


def test_blocks_that_write_the_same_element():
    data = np.zeros(4, "u4")
    fails(ptx("st.global.b32 [%rd0], 1;"), data, grid=2, block=1, message="in one launch: write to what another thread")
    launch(ptx("red.global.add.u32 [%rd0], 1;"), data, grid=300, block=64)
    assert data[0] == 300 * 64


def test_global_memory_within_a_block():
    code = "shl.b32 %r1, %t, 2; cvt.u64.u32 %rd1, %r1; add.s64 %rd1, %rd0, %rd1; st.global.b32 [%rd1], %t; {}"
    code += "xor.b32 %r1, %r1, 128; cvt.u64.u32 %rd2, %r1; add.s64 %rd2, %rd0, %rd2; ld.global.b32 %r2, [%rd2];"
    launch(ptx(code.format("bar.sync 0;")), np.zeros(64, "u4"), block=64)
    fails(ptx(code.format("")), np.zeros(64, "u4"), block=64, message="in the same barrier interval")


def test_blocks_that_read_what_another_writes():
    code = "mov.u32 %r0, %ctaid.x; mul.wide.u32 %rd1, %r0, 4; add.s64 %rd2, %rd0, %rd1; ld.global.b32 %r1, [%rd0+8]; {}"
    launch(ptx(code.format("")), np.zeros(4, "u4"), grid=4, block=1)
    error = fails(ptx(code.format("st.global.b32 [%rd2], 7;")), np.zeros(4, "u4"), grid=4, block=1, message="data race")
    assert "block (2, 0, 0)" in error.message


LAST_BLOCK = """
mov.u32 %r0, %ctaid.x; mul.wide.u32 %rd3, %r0, 4; add.s64 %rd3, %rd0, %rd3; add.u32 %r1, %r0, 1;
setp.eq.u32 %p0, %t, 0; @!%p0 bra END;
st.global.b32 [%rd3], %r1; {} atom.global.add.u32 %r2, [%rd1], 1; {}
setp.eq.u32 %p1, %r2, 299; @!%p1 bra END;
mov.b32 %r3, 0; mov.b32 %r4, 0;
SUM: mul.wide.u32 %rd4, %r3, 4; add.s64 %rd4, %rd0, %rd4; ld.global.b32 %r5, [%rd4]; add.u32 %r4, %r4, %r5;
add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 300; @%p2 bra SUM; st.global.b32 [%rd2], %r4;
END:
"""


def test_the_last_block_may_read_what_the_others_published():
    """Each block writes, fences and counts; the one that counts last sums up: right only with both fences."""

    def arguments():
        return np.zeros(300, "u4"), np.zeros(1, "u4"), np.zeros(1, "u4")

    parts, counter, total = arguments()
    launch(ptx(LAST_BLOCK.format("membar.gl;", "membar.gl;"), 3), parts, counter, total, grid=300, block=64)
    assert total[0] == 300 * 301 // 2
    fails(
        ptx(LAST_BLOCK.format("", "membar.gl;"), 3), *arguments(), grid=300, block=64, message="in one launch: read of"
    )
    fails(ptx(LAST_BLOCK.format("membar.gl;", ""), 3), *arguments(), grid=300, block=64, message="data race")
    strong = LAST_BLOCK.format("", "").replace("atom.global.add", "atom.acq_rel.gpu.global.add")
    launch(ptx(strong, 3), *arguments(), grid=300, block=64)


def test_divergent_barriers():
    half = "setp.lt.u32 %p0, %t, 16; @!%p0 bra AFTER; bar.sync 0; AFTER: {}"
    fails(ptx(half.format(""), 0), block=64, message=r"divergent barrier 0: thread \(0, 0, 0\).*\(it has exited\)")
    error = fails(ptx(half.format("bar.sync 0;"), 0), block=64, message="divergent barrier 0: .* of one warp")
    assert "different instructions" in error.message


def test_a_shuffle_from_a_thread_that_is_not_there():
    code = "setp.lt.u32 %p0, %t, 16; @!%p0 bra END; shfl.sync.bfly.b32 %r0, %t, 16, 31, {}; END:"
    fails(ptx(code.format("0xffff"), 0), message="shfl reads from lane 16, which does not take part")
    fails(ptx(code.format("0xff"), 0), message="member mask does not name it")


def test_unknown_instructions_are_named_with_their_line():
    error = fails(
        ptx("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r0], 32;", 0),
        message="tcgen05.alloc.*not simulated",
    )
    assert "(line 12)" in error.where[1]


@pytest.mark.parametrize(
    "code",
    [
        "add.rn.f32.bf16 %f0, %h0, %f1;",
        "min.relu.u32 %r0, %r1, %r2;",
        "cvt.rz.relu.tf32.f32 %r0, %f0;",
        "st.bulk.shared::cta [%rd0], 64, 0;",
        "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32 {%r0}, {%r1}, {%r2}, {%r3};",
        "bar.red.popc.u32 %r0, 0, %p0;",
        "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f0}, %rd0, %rd1, 0, %r0, 1, 1, 1, 0, 0;",
    ],
)
def test_modifiers_that_change_the_meaning_are_refused(code):
    fails(ptx(code, 0), message=f"{code.split()[0]}.*is not simulated")


def test_an_endless_wait_is_found(monkeypatch):
    monkeypatch.setattr("mlc_compiler.sim.machine.LIMIT", 5000)
    fails(
        ptx("LOOP: ld.global.b32 %r0, [%rd0]; setp.eq.u32 %p0, %r0, 0; @%p0 bra LOOP;"),
        np.zeros(1, "u4"),
        block=1,
        message="does not end",
    )


def test_launches_that_do_not_fit():
    fails(ptx("", 1), message="got 0 arguments; expected 1")
    fails(ptx("", 0), block=1025, message="a block of 1025 threads; the kernel allows 1 to 1024")
