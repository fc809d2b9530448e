"""Branches, loops, barriers, shuffles, atomics, calls."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler.sim import Memory, SimulationError, parse_ptx, run
from tests.compiler.sim.kernels import from_llvm, launch, ptx

OUT = "mul.wide.u32 %rd1, %t, 4; add.s64 %rd1, %rd0, %rd1; st.global.b32 [%rd1], %r0;"


def result(code: str, block: int = 64, declarations: str = "") -> np.ndarray:
    out = np.zeros(block, "u4")
    launch(ptx(code + OUT, 1, declarations), out, block=block)
    return out


def test_loops_of_different_lengths():
    code = "mov.b32 %r0, 0; mov.b32 %r1, 0; LOOP: setp.ge.u32 %p0, %r1, %t; @%p0 bra DONE;"
    code += "add.s32 %r0, %r0, %r1; add.s32 %r1, %r1, 1; bra LOOP; DONE:"
    t = np.arange(64)
    np.testing.assert_array_equal(result(code), t * (t - 1) // 2)


def test_both_sides_of_a_condition_join_again():
    code = "and.b32 %r1, %t, 1; setp.eq.u32 %p0, %r1, 0; @%p0 bra EVEN; mul.lo.u32 %r0, %t, 3; bra JOIN;"
    code += "EVEN: add.u32 %r0, %t, 100; JOIN: shfl.sync.idx.b32 %r0, %r0, 1, 31, -1;"
    np.testing.assert_array_equal(result(code), np.repeat([3, 99], 32))


def test_threads_that_come_late_to_a_warp_instruction():
    """Half of the warp jumps behind the shuffle's place in the text and comes back."""
    code = "setp.lt.u32 %p0, %t, 16; @%p0 bra LATER; mov.b32 %r1, 5;"
    code += "MEET: shfl.sync.idx.b32 %r0, %r1, 0, 31, -1; bra END; LATER: mov.b32 %r1, 9; bra MEET; END:"
    np.testing.assert_array_equal(result(code, 32), np.full(32, 9))


def test_indexed_branch():
    code = "and.b32 %r1, %t, 3; TABLE: .branchtargets A, B, C, A; brx.idx %r1, TABLE;"
    code += "A: mov.b32 %r0, 10; bra E; B: mov.b32 %r0, 20; bra E; C: mov.b32 %r0, 30; E:"
    np.testing.assert_array_equal(result(code), np.tile([10, 20, 30, 10], 16))


def test_labels_and_registers_of_inner_braces_hide_others():
    block = "{ .reg .b32 %r1; .reg .pred p; mov.b32 %r1, 0; L: add.u32 %r1, %r1, 1; add.u32 %r0, %r0, 1;"
    block += "setp.lt.u32 p, %r1, 5; @p bra L; }"
    np.testing.assert_array_equal(
        result("mov.b32 %r0, 0; mov.b32 %r1, 7;" + block * 2 + "add.u32 %r0, %r0, %r1;"), np.full(64, 17)
    )


@pytest.mark.parametrize(
    "mode, operand, control, source",
    [
        ("bfly", 5, 31, lambda t: t ^ 5),
        ("down", 3, 31, lambda t: np.where(t % 32 + 3 < 32, t + 3, t)),
        ("up", 3, 0, lambda t: np.where(t % 32 >= 3, t - 3, t)),
        ("idx", 7, 31, lambda t: t // 32 * 32 + 7),
        ("bfly", 2, 0x1C1F, lambda t: t ^ 2),
        ("idx", 1, 0x181F, lambda t: t // 8 * 8 + 1),
    ],
)
def test_shuffles(mode, operand, control, source):
    found = result(f"shfl.sync.{mode}.b32 %r0, %t, {operand}, {control}, -1;")
    np.testing.assert_array_equal(found, source(np.arange(64)))


def test_votes_and_reductions():
    odd = "and.b32 %r1, %t, 1; setp.eq.u32 %p0, %r1, 1;"
    assert (result(odd + "vote.sync.ballot.b32 %r0, %p0, -1;") == 0xAAAAAAAA).all()
    assert (result(odd + "vote.sync.any.pred %p1, %p0, -1; selp.b32 %r0, 1, 0, %p1;") == 1).all()
    assert (result(odd + "vote.sync.all.pred %p1, %p0, -1; selp.b32 %r0, 1, 0, %p1;") == 0).all()
    np.testing.assert_array_equal(result("redux.sync.add.u32 %r0, %t, -1;"), np.repeat([496, 1520], 32))
    np.testing.assert_array_equal(result("redux.sync.max.s32 %r0, %t, -1;"), np.repeat([31, 63], 32))
    half = "shr.u32 %r1, %t, 4; match.any.sync.b32 %r0, %r1, -1;"
    np.testing.assert_array_equal(result(half), np.tile(np.repeat([0xFFFF, 0xFFFF0000], 16), 2))
    elected = "elect.sync %r1|%p0, -1; selp.b32 %r0, 1, 0, %p0;"
    np.testing.assert_array_equal(np.flatnonzero(result(elected)), [0, 32])


def test_named_barriers_order_a_part_of_the_block():
    """Warp 0 writes and arrives, warp 1 waits and reads; warps 2 and 3 are not concerned."""
    code = ".shared .b32 cell; setp.lt.u32 %p0, %t, 32; setp.lt.u32 %p1, %t, 64; mov.b32 %r0, 0;"
    code += "@!%p1 bra END; @!%p0 bra READ;"
    code += "setp.eq.u32 %p2, %t, 0; @%p2 st.shared.b32 [cell], 41; bar.arrive 3, 64; bra END;"
    code += "READ: bar.sync 3, 64; ld.shared.b32 %r0, [cell]; END:"
    np.testing.assert_array_equal(result(code, 128), np.repeat([0, 41, 0, 0], 32))


def test_atomics_return_old_values_in_some_order():
    out, counter = np.zeros(64, "u4"), np.zeros(1, "u4")
    launch(
        ptx("atom.global.add.u32 %r0, [%rd2], 2;".replace("%rd2", "%rd1") + OUT.replace("%rd1", "%rd3"), 2),
        out,
        counter,
        block=64,
    )
    np.testing.assert_array_equal(np.sort(out), np.arange(64) * 2)
    assert counter[0] == 128
    largest = np.array([3.5], "f4")
    launch(ptx("cvt.rn.f32.u32 %f0, %t; red.global.add.f32 [%rd0], %f0;"), largest)
    assert largest[0] == 3.5 + 496


def test_dynamic_shared_memory_begins_behind_the_static_variables():
    code = ".shared .align 4 .b8 small[20]; mov.b32 %r1, dynamic; mov.b32 %r2, small; sub.u32 %r0, %r1, %r2;"
    code += "shl.b32 %r3, %t, 2; add.u32 %r3, %r1, %r3; st.shared.b32 [%r3], %r0; ld.shared.b32 %r0, [%r3];"
    out = np.zeros(64, "u4")
    text = ptx(code + OUT, 1, ".extern .shared .align 128 .b8 dynamic[];")
    launch(text, out, block=64, shared_bytes=256)
    np.testing.assert_array_equal(out, np.full(64, 128))
    with pytest.raises(
        SimulationError, match="out of bounds: 4 bytes at shared address 0x17c; the block has 380 bytes"
    ):
        launch(text, out, block=64, shared_bytes=252)


GRID_BARRIER = """
mov.u32 %r0, %ctaid.x; mul.wide.u32 %rd3, %r0, 4; add.s64 %rd3, %rd0, %rd3; add.u32 %r1, %r0, 1;
setp.ne.u32 %p0, %t, 0; @%p0 bra MEET;
st.global.b32 [%rd3], %r1; fence.acq_rel.gpu; atom.relaxed.gpu.global.add.u32 %r2, [%rd1], 1;
SPIN: ld.relaxed.gpu.global.b32 %r3, [%rd1]; setp.lt.u32 %p1, %r3, 200; @%p1 bra SPIN; fence.acq_rel.gpu;
MEET: bar.sync 0;
xor.b32 %r4, %r0, 1; mul.wide.u32 %rd4, %r4, 4; add.s64 %rd4, %rd0, %rd4; ld.global.b32 %r5, [%rd4];
add.s64 %rd5, %rd2, %rd3; sub.s64 %rd5, %rd5, %rd0; @!%p0 st.global.b32 [%rd5], %r5;
"""


def test_accesses_of_32_bytes():
    data, out = np.arange(256, dtype="u4"), np.zeros(256, "u4")
    vector = "{" + ", ".join(f"%r{i}" for i in range(8)) + "}"
    code = "shl.b32 %r9, %t, 5; cvt.u64.u32 %rd2, %r9; add.s64 %rd3, %rd0, %rd2; add.s64 %rd4, %rd1, %rd2;"
    launch(ptx(code + f"ld.global.v8.b32 {vector}, [%rd3]; st.global.v8.b32 [%rd4], {vector};", 2), data, out)
    np.testing.assert_array_equal(out, data)


def test_a_barrier_of_all_blocks():
    """Each block waits for the counter to reach the number of blocks; then it reads what its neighbour wrote."""
    memory = Memory()
    arguments = [memory.allocate(np.zeros(200, "u4")), memory.allocate(np.zeros(1, "u4")), memory.allocate(800)]
    kernel = parse_ptx(ptx(GRID_BARRIER, 3)).kernels["k"]
    run(kernel, (200,), (64,), arguments, memory, cooperative=True)
    np.testing.assert_array_equal(memory.view(arguments[2], "u4", (200,)), (np.arange(200) ^ 1) + 1)


def test_calls_are_expanded():
    function = ".func (.param .b32 r) twice(.param .b32 x) { .reg .b32 %r<3>; ld.param.b32 %r1, [x];"
    function += "shl.b32 %r2, %r1, 1; st.param.b32 [r], %r2; ret; }"
    call = "{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r0; call.uni (b), twice, (a); ld.param.b32 %r0, [b]; }"
    np.testing.assert_array_equal(result("mov.b32 %r0, %t;" + call * 2, declarations=function), np.arange(64) * 4)


def test_what_llvm_emits_for_a_reduction():
    """Loops, shared memory, shuffles, constants, local arrays and atomics of a kernel compiled from LLVM IR."""
    total = np.zeros(1, "f4")
    values = np.random.default_rng(0).normal(size=5000).astype("f4")
    counts = launch(from_llvm(REDUCTION), total, values, len(values), grid=8, block=128)
    np.testing.assert_allclose(total[0], values.sum(), rtol=1e-4)
    assert counts.barriers == 8 and counts.by_opcode["atom"] + counts.by_opcode["red"] == 8
    assert counts.distinct_bytes_read == 20000 == counts.global_bytes_read


REDUCTION = """
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
declare float @llvm.nvvm.shfl.sync.bfly.f32(i32, float, i32, i32)
@partial = internal addrspace(3) global [4 x float] undef, align 16
@weights = internal addrspace(4) constant [2 x float] [float 1.0, float 1.0], align 4
define ptx_kernel void @k(ptr addrspace(1) %out, ptr addrspace(1) noalias readonly %in, i64 %n) "nvvm.maxntid"="128" {
entry:
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %b128 = mul i32 %b, 128
  %first32 = add i32 %b128, %t
  %first = zext i32 %first32 to i64
  %odd = and i32 %t, 1
  %wp = getelementptr [2 x float], ptr addrspace(4) @weights, i32 0, i32 %odd
  %w = load float, ptr addrspace(4) %wp
  br label %loop
loop:
  %i = phi i64 [ %first, %entry ], [ %next, %body ]
  %sum = phi float [ 0.0, %entry ], [ %more, %body ]
  %go = icmp slt i64 %i, %n
  br i1 %go, label %body, label %done
body:
  %p = getelementptr float, ptr addrspace(1) %in, i64 %i
  %v = load float, ptr addrspace(1) %p
  %wv = fmul contract float %v, %w
  %more = fadd contract float %sum, %wv
  %next = add i64 %i, 1024
  br label %loop
done:
  %s16 = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %sum, i32 16, i32 31)
  %a16 = fadd float %sum, %s16
  %s8 = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %a16, i32 8, i32 31)
  %a8 = fadd float %a16, %s8
  %s4 = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %a8, i32 4, i32 31)
  %a4 = fadd float %a8, %s4
  %s2 = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %a4, i32 2, i32 31)
  %a2 = fadd float %a4, %s2
  %s1 = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %a2, i32 1, i32 31)
  %a1 = fadd float %a2, %s1
  %lane = and i32 %t, 31
  %leader = icmp eq i32 %lane, 0
  br i1 %leader, label %put, label %wait
put:
  %warp = lshr i32 %t, 5
  %slot = getelementptr [4 x float], ptr addrspace(3) @partial, i32 0, i32 %warp
  store float %a1, ptr addrspace(3) %slot
  br label %wait
wait:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %one = icmp eq i32 %t, 0
  br i1 %one, label %finish, label %end
finish:
  %all = load <4 x float>, ptr addrspace(3) @partial, align 16
  %e0 = extractelement <4 x float> %all, i32 0
  %e1 = extractelement <4 x float> %all, i32 1
  %e2 = extractelement <4 x float> %all, i32 2
  %e3 = extractelement <4 x float> %all, i32 3
  %x = fadd float %e0, %e1
  %y = fadd float %e2, %e3
  %z = fadd float %x, %y
  %old = atomicrmw fadd ptr addrspace(1) %out, float %z monotonic
  br label %end
end:
  ret void
}
"""
