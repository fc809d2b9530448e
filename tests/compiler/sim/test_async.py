"""Asynchronous copies and barriers in shared memory: cp.async groups, mbarrier, bulk and tensor copies."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler.sim import Memory, SimulationError, TensorMap, encode_tensor_map, parse_ptx, run
from tests.compiler.sim.kernels import launch, ptx

WAIT = "{{ .reg .pred done; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [bar], {}; @!done bra AGAIN; }}"
BULK = """
.shared .align 128 .b8 tile[1024]; .shared .align 8 .b64 bar;
mov.b32 %r0, tile; setp.eq.u32 %p0, %t, 0;
@%p0 mbarrier.init.shared::cta.b64 [bar], 1;
{synchronize}
@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {expected};
@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%rd0], 256, [bar];
{wait}
shl.b32 %r1, %t, 2; add.u32 %r1, %r0, %r1; ld.shared.b32 %r2, [%r1]; add.u32 %r2, %r2, 5;
mul.wide.u32 %rd2, %t, 4; add.s64 %rd2, %rd1, %rd2; st.global.b32 [%rd2], %r2;
"""


def bulk(synchronize: str = "bar.sync 0;", expected: int = 256, wait: str = WAIT.format(0)) -> np.ndarray:
    source, out = np.arange(64, dtype="u4"), np.zeros(64, "u4")
    launch(ptx(BULK.format(synchronize=synchronize, expected=expected, wait=wait), 2), source, out, block=64)
    return out


def test_bulk_copy_completes_on_its_mbarrier():
    np.testing.assert_array_equal(bulk(), np.arange(64) + 5)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"wait": ""}, "missing cp.async wait"),
        ({"synchronize": ""}, "data race"),
        (
            {"expected": 512},
            "phase 0 of the mbarrier at shared address 0x400 still needs 0 of 1 arrivals and 256 bytes",
        ),
        ({"wait": WAIT.format(1)}, "missing cp.async wait"),
    ],
)
def test_faults_of_bulk_copies(change, message):
    with pytest.raises(SimulationError, match=message):
        bulk(**change)


PIPELINE = """
.shared .align 128 .b8 tile[512]; .shared .align 8 .b64 full[2]; .shared .align 8 .b64 empty[2];
.reg .pred done, producer, first;
mov.b32 %r0, tile; mov.b32 %r1, full; mov.b32 %r2, empty;
setp.eq.u32 first, %t, 0; setp.lt.u32 producer, %t, 32;
@!first bra READY;
mbarrier.init.shared::cta.b64 [full], 1; mbarrier.init.shared::cta.b64 [full+8], 1;
mbarrier.init.shared::cta.b64 [empty], {consumers}; mbarrier.init.shared::cta.b64 [empty+8], {consumers};
READY: bar.sync 0;
mov.b32 %r3, 0; mov.b32 %r9, 0;
@!producer bra CONSUME;
@!first bra END;
PRODUCE: and.b32 %r4, %r3, 1; shl.b32 %r5, %r4, 3; add.u32 %r6, %r1, %r5; add.u32 %r7, %r2, %r5;
shr.u32 %r8, %r3, 1; and.b32 %r8, %r8, 1; xor.b32 %r8, %r8, 1;
W1: mbarrier.try_wait.parity.shared::cta.b64 done, [%r7], %r8; @!done bra W1;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r6], 256;
shl.b32 %r10, %r4, 8; add.u32 %r10, %r0, %r10; mul.wide.u32 %rd2, %r3, 256; add.s64 %rd2, %rd0, %rd2;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%rd2], 256, [%r6];
add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 10; @%p1 bra PRODUCE; bra END;
CONSUME: and.b32 %r4, %r3, 1; shl.b32 %r5, %r4, 3; add.u32 %r6, %r1, %r5; add.u32 %r7, %r2, %r5;
shr.u32 %r8, %r3, 1; and.b32 %r8, %r8, 1;
W2: mbarrier.try_wait.parity.shared::cta.b64 done, [%r6], %r8; @!done bra W2;
sub.u32 %r11, %t, 32; shl.b32 %r11, %r11, 2; shl.b32 %r10, %r4, 8; add.u32 %r10, %r0, %r10; add.u32 %r10, %r10, %r11;
ld.shared.b32 %r12, [%r10]; add.u32 %r9, %r9, %r12;
mbarrier.arrive.shared::cta.b64 %rd5, [%r7];
add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 10; @%p1 bra CONSUME;
cvt.u64.u32 %rd3, %r11; add.s64 %rd3, %rd1, %rd3; st.global.b32 [%rd3], %r9;
END:
"""


def test_a_producer_and_consumers_take_turns_over_two_stages():
    source, out = np.random.default_rng(0).integers(0, 1000, (10, 64)).astype("u4"), np.zeros(64, "u4")
    launch(ptx(PIPELINE.format(consumers=64), 2), source, out, block=96)
    np.testing.assert_array_equal(out, source.sum(axis=0))


def test_a_stage_that_is_filled_while_it_is_read():
    """The consumers arrive before they read: the copy of the next round races with the reads."""
    early = PIPELINE.format(consumers=64).replace("mbarrier.arrive.shared::cta.b64 %rd5, [%r7];\n", "")
    early = early.replace("ld.shared.b32 %r12", "mbarrier.arrive.shared::cta.b64 %rd5, [%r7]; ld.shared.b32 %r12")
    with pytest.raises(SimulationError, match="data race|missing cp.async wait"):
        launch(ptx(early, 2), np.zeros((10, 64), "u4"), np.zeros(64, "u4"), block=96)


def test_copies_of_threads_arrive_when_they_are_complete():
    code = ".shared .align 16 .b8 tile[256]; .shared .align 8 .b64 bar; mov.b32 %r0, tile; shl.b32 %r1, %t, 2;"
    code += "setp.eq.u32 %p0, %t, 0; @%p0 mbarrier.init.shared::cta.b64 [bar], 64; bar.sync 0; add.u32 %r2, %r0, %r1;"
    code += "cvt.u64.u32 %rd1, %r1; add.s64 %rd1, %rd0, %rd1; cp.async.ca.shared.global [%r2], [%rd1], 4;"
    code += "cp.async.mbarrier.arrive.noinc.shared.b64 [bar];" + WAIT.format(0).replace("{{", "{").replace("}}", "}")
    code += (
        "xor.b32 %r1, %r1, 128; add.u32 %r2, %r0, %r1; ld.shared.b32 %r3, [%r2]; bar.sync 0; st.global.b32 [%rd1], %r3;"
    )
    data = np.arange(64, dtype="u4")
    launch(ptx(code), data, block=64)
    np.testing.assert_array_equal(data, np.arange(64) ^ 32)


def test_too_few_arrivals_are_named():
    with pytest.raises(SimulationError, match="phase 0 of the mbarrier .* still needs 1 of 65 arrivals"):
        launch(ptx(PIPELINE.format(consumers=65), 2), np.zeros((10, 64), "u4"), np.zeros(64, "u4"), block=96)


def test_groups_complete_in_order():
    """wait_group 1 of two groups: the first copy may be read, the second may not."""
    code = ".shared .align 16 .b8 tile[32]; cp.async.ca.shared.global [tile], [%rd0], 4; cp.async.commit_group;"
    code += "cp.async.ca.shared.global [tile+16], [%rd0+4], 4; cp.async.commit_group; cp.async.wait_group 1;"
    code += "ld.shared.b32 %r0, [tile]; {} st.global.b32 [%rd0], %r0;"
    data = np.array([3, 4], "u4")
    launch(ptx(code.format("")), data, block=1)
    assert data[0] == 3
    with pytest.raises(SimulationError, match="missing cp.async wait"):
        launch(ptx(code.format("ld.shared.b32 %r0, [tile+16];")), data, block=1)


def test_a_copy_with_a_smaller_source_fills_with_zeros():
    code = ".shared .align 16 .b8 tile[16]; mov.b32 %r1, 8; cp.async.cg.shared.global [tile], [%rd0], 16, %r1;"
    code += "cp.async.wait_all; ld.shared.v4.b32 {%r2, %r3, %r4, %r5}, [tile];"
    code += "st.global.v4.b32 [%rd1], {%r2, %r3, %r4, %r5};"
    out = np.ones(4, "u4")
    launch(ptx(code, 2), np.array([7, 8], "u4"), out, block=1)
    np.testing.assert_array_equal(out, [7, 8, 0, 0])


STORE = """
.shared .align 128 .b8 tile[128]; mov.b32 %r0, tile; shl.b32 %r1, %t, 2; add.u32 %r1, %r0, %r1; st.shared.b32 [%r1], %t;
bar.sync 0; setp.eq.u32 %p0, %t, 0; @!%p0 bra END; fence.proxy.async.shared::cta;
cp.async.bulk.global.shared::cta.bulk_group [%rd0], [tile], 128; cp.async.bulk.commit_group; {} END:
"""


def test_bulk_stores_have_to_be_waited_for():
    out = np.zeros(32, "u4")
    launch(ptx(STORE.format("cp.async.bulk.wait_group.read 0;")), out)
    np.testing.assert_array_equal(out, np.arange(32))
    with pytest.raises(SimulationError, match="bulk store from shared memory was not waited for"):
        launch(ptx(STORE.format("")), out)
    with pytest.raises(SimulationError, match=r"missing fence.proxy.async: what thread \(0, 0, 0\)"):
        launch(ptx(STORE.replace("fence.proxy.async.shared::cta;", "").format("")), out)


TENSOR = """
.version 8.4
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out, .param .u32 x, .param .u32 y)
{
.reg .b64 %rd<9>; .reg .b32 %r<9>, %t; .reg .pred %p0, done;
.shared .align 1024 .b8 tile[2048]; .shared .align 8 .b64 bar;
mov.b64 %rd0, map; cvta.param.u64 %rd1, %rd0; ld.param.u64 %rd2, [out]; ld.param.u32 %r1, [x]; ld.param.u32 %r2, [y];
mov.u32 %t, %tid.x; setp.eq.u32 %p0, %t, 0; @!%p0 bra READY;
mbarrier.init.shared::cta.b64 [bar], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 2048;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%rd1, {%r1, %r2}], [bar];
READY: bar.sync 0;
W: mbarrier.try_wait.parity.shared::cta.b64 done, [bar], 0; @!done bra W;
mov.b32 %r3, tile; shl.b32 %r4, %t, 4; add.u32 %r3, %r3, %r4; ld.shared.v4.b32 {%r5, %r6, %r7, %r8}, [%r3];
cvt.u64.u32 %rd3, %r4; add.s64 %rd3, %rd2, %rd3; st.global.v4.b32 [%rd3], {%r5, %r6, %r7, %r8};
ret;
}
"""


@pytest.mark.parametrize("swizzle", [0, 128])
@pytest.mark.parametrize("x, y", [(0, 0), (8, 5), (-16, -3), (40, 90)])
def test_tensor_copies(x, y, swizzle):
    """A box of 16 rows of 64 elements; what lies outside the tensor is zero; chunk c of row r is at c ^ r % 8."""
    memory = Memory()
    tensor = np.random.default_rng(1).integers(1, 1000, (100, 72)).astype("u2")
    out = memory.allocate(2048)
    encoded = encode_tensor_map(TensorMap(memory.allocate(tensor), 2, (72, 100), (144,), (64, 16), swizzle))
    run(parse_ptx(TENSOR).kernels["k"], (1,), (128,), [encoded, out, x, y], memory)
    rows, columns = np.arange(y, y + 16)[:, None], np.arange(x, x + 64)
    inside = (rows >= 0) & (rows < 100) & (columns >= 0) & (columns < 72)
    expected = np.where(inside, tensor[rows.clip(0, 99), columns.clip(0, 71)], 0).reshape(16, 8, 8)
    found = memory.view(out, "u2", (16, 8, 8))
    for row in range(16):
        for chunk in range(8):
            np.testing.assert_array_equal(found[row, chunk ^ (row % 8 if swizzle else 0)], expected[row, chunk])


def test_tensor_maps_that_the_hardware_does_not_take():
    with pytest.raises(SimulationError, match="rows are longer than the swizzle's span"):
        encode_tensor_map(TensorMap(0, 2, (128, 128), (256,), (128, 16), 128))
    with pytest.raises(SimulationError, match="a stride that is no multiple of 16"):
        encode_tensor_map(TensorMap(0, 2, (70, 100), (140,), (64, 16)))
