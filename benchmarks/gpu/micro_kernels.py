"""The kernels of ``micro.py``: each repeats one operation, and writes a result that tests can check.

Sizes of the inner loop are constants of a kernel; the number of repetitions is a parameter.
"""

# The bodies are TVMScript, parsed from source; they do not type-check as Python.
# mypy: ignore-errors

from __future__ import annotations

from mlc_compiler.ir.expr import Call, PrimExpr
from mlc_compiler.script import T
from mlc_compiler.tir.nodes import BufferLoad, PrimFunc

WARP = 32
LOADS = 4
"""16-byte loads that a thread of ``read`` has in flight."""

WARPGROUP, WARPGROUP_DEPTH = 128, 64
"""Threads that execute ``wgmma`` together, and the length of the reduction in a round."""

MMA_IN_LOOP = 16
"""Instructions in the inner loop of ``multiply``, for any number of accumulators."""


def instruction(name: str, *operands: PrimExpr) -> Call:
    """A call of a back end instruction; buffer elements are passed by address."""
    args = (Call("address_of", (o,), "handle") if isinstance(o, BufferLoad) else o for o in operands)
    return Call(f"intrinsic.{name}", tuple(args), "handle")


def read(blocks: int, threads: int, rounds: int) -> PrimFunc:
    """``main(data, out)``: every word of ``data`` is read once, 16 bytes at a time.

    data: uint32 [rounds, LOADS, blocks, threads, 4]. out: uint32 [blocks, threads], the exclusive or of a thread's
    words. The grid reads ``LOADS`` consecutive pieces of ``16 * blocks * threads`` bytes in each round.
    """

    @T.prim_func
    def main(data: T.Buffer((rounds, LOADS, blocks, threads, 4), "uint32"), out: T.Buffer((blocks, threads), "uint32")):
        for block in T.thread_binding(blocks, thread="blockIdx.x"):
            for thread in T.thread_binding(threads, thread="threadIdx.x"):
                folded = T.decl_buffer((4,), "uint32", scope="local")
                piece = T.decl_buffer((LOADS, 4), "uint32", scope="local")
                for word in T.unroll(4):
                    folded[word] = T.uint32(0)
                for i in T.serial(rounds):
                    for load in T.unroll(LOADS):
                        for word in T.vectorized(4):
                            piece[load, word] = data[i, load, block, thread, word]
                    for load in T.unroll(LOADS):
                        for word in T.unroll(4):
                            folded[word] = folded[word] ^ piece[load, word]
                out[block, thread] = folded[0] ^ folded[1] ^ folded[2] ^ folded[3]

    return main


def chain() -> PrimFunc:
    """``main(out, count)``: ``count`` launches of one warp, which do nothing; the last one stores ``count``.

    out: int64 [1].
    """

    @T.prim_func
    def main(out: T.Buffer((1,), "int64"), count: T.int64):
        for i in T.serial(count):
            for _block in T.thread_binding(1, thread="blockIdx.x"):
                for thread in T.thread_binding(WARP, thread="threadIdx.x"):
                    if i == count - 1:
                        if thread == 0:
                            out[0] = count

    return main


def overlapped_chain() -> PrimFunc:
    """As ``chain``, with programmatic dependent launch: a kernel triggers its successor first, then waits."""

    @T.prim_func
    def main(out: T.Buffer((1,), "int64"), count: T.int64):
        T.func_attr({"cuda.pdl": True})
        for i in T.serial(count):
            for _block in T.thread_binding(1, thread="blockIdx.x"):
                for thread in T.thread_binding(WARP, thread="threadIdx.x"):
                    instruction("cuda.griddep.launch_dependents")
                    instruction("cuda.griddep.wait")
                    if i == count - 1:
                        if thread == 0:
                            out[0] = count

    return main


@T.macro
def grid_barrier(counter, one, thread, arrivals):
    """All blocks wait until ``counter`` is ``arrivals``; each adds ``one[0] = 1``. All blocks must be resident."""
    T.tvm_storage_sync("shared")
    if thread == 0:
        instruction("cuda.red.release.add.u32", counter[0], one[0])
        instruction("cuda.counter.wait", counter[0], arrivals)
    T.tvm_storage_sync("shared")


def barriers(blocks: int, threads: int) -> PrimFunc:
    """``main(counter, rounds)``: ``rounds`` barriers of the whole grid.

    counter: uint32 [1], 0 at first and ``blocks * rounds`` in the end; it is cleared by a kernel of its own.
    """

    @T.prim_func
    def main(counter: T.Buffer((1,), "uint32"), rounds: T.int64):
        T.func_attr({"cuda.explicit_sync": True})
        for _block in T.thread_binding(1, thread="blockIdx.x"):
            for _thread in T.thread_binding(1, thread="threadIdx.x"):
                counter[0] = T.uint32(0)
        for _block in T.thread_binding(blocks, thread="blockIdx.x"):
            for thread in T.thread_binding(threads, thread="threadIdx.x"):
                one = T.decl_buffer((1,), "uint32", scope="local")
                one[0] = T.uint32(1)
                for i in T.serial(rounds):
                    grid_barrier(counter, one, thread, (i + 1) * blocks)

    return main


def multiply(blocks: int, warps: int, accumulators: int) -> PrimFunc:
    """``main(left, right, out, rounds)``: ``mma.sync`` m16n8k16, float16 to float32, on operands in registers.

    Each warp executes ``MMA_IN_LOOP * rounds`` instructions; ``accumulators`` of them are independent of each other.
    left: float16 [32, 8], right: float16 [32, 4], out: float32 [blocks, warps, 32, 4], the sums of all products, in
    the layout of fragments (PTX ISA, "Matrix Fragments for mma.m16n8k16").
    """

    @T.prim_func
    def main(
        left: T.Buffer((WARP, 8), "float16"),
        right: T.Buffer((WARP, 4), "float16"),
        out: T.Buffer((blocks, warps, WARP, 4), "float32"),
        rounds: T.int64,
    ):
        for block in T.thread_binding(blocks, thread="blockIdx.x"):
            for warp in T.thread_binding(warps, thread="threadIdx.y"):
                for lane in T.thread_binding(WARP, thread="threadIdx.x"):
                    a = T.decl_buffer((8,), "float16", scope="local")
                    b = T.decl_buffer((4,), "float16", scope="local")
                    sums = T.decl_buffer((accumulators, 4), "float32", scope="local")
                    for e in T.vectorized(8):
                        a[e] = left[lane, e]
                    for e in T.vectorized(4):
                        b[e] = right[lane, e]
                    for n in T.unroll(accumulators):
                        for e in T.unroll(4):
                            sums[n, e] = T.float32(0)
                    for _i in T.serial(rounds):
                        for _repeat in T.unroll(MMA_IN_LOOP // accumulators):
                            for n in T.unroll(accumulators):
                                instruction("cuda.mma.m16n8k16.f32.f16", sums[n, 0], a[0], b[0])
                    for n in T.unroll(accumulators - 1):
                        for e in T.unroll(4):
                            sums[0, e] = sums[0, e] + sums[n + 1, e]
                    for e in T.vectorized(4):
                        out[block, warp, lane, e] = sums[0, e]

    return main


def multiply_by_warpgroups(blocks: int, groups: int, columns: int) -> PrimFunc:
    """``main(left, right, out, rounds)``: ``wgmma`` m64nNk16, float16 to float32, on operands in shared memory.

    Each of the ``groups`` of four warps of a block executes four instructions in a round, on the same tiles. left:
    float16 [64, 64], right: float16 [columns, 64], rows of 64 positions. out: float32 [blocks, groups, 128,
    columns / 2], the sums of all products, in the layout of accumulators (PTX ISA, "Register Fragments for
    wgmma.mma_async.m64nNk16").
    """
    threads = WARPGROUP * groups
    multiply, wait = f"cuda.wgmma.m64n{columns}k16.f32.f16", f"cuda.wgmma.wait.n{columns}"

    @T.prim_func
    def main(
        left: T.Buffer((64, WARPGROUP_DEPTH), "float16"),
        right: T.Buffer((columns, WARPGROUP_DEPTH), "float16"),
        out: T.Buffer((blocks, groups, WARPGROUP, columns // 2), "float32"),
        rounds: T.int64,
    ):
        T.func_attr({"cuda.explicit_sync": True})
        for block in T.thread_binding(blocks, thread="blockIdx.x"):
            a = T.decl_buffer((64, WARPGROUP_DEPTH), "float16", scope="shared")
            b = T.decl_buffer((columns, WARPGROUP_DEPTH), "float16", scope="shared")
            for thread in T.thread_binding(threads, thread="threadIdx.x"):
                sums = T.decl_buffer((columns // 2,), "float32", scope="local")
                swizzled_copy(left, a, 64, thread, threads)
                swizzled_copy(right, b, columns, thread, threads)
                instruction("cuda.fence.proxy_async")
                T.tvm_storage_sync("shared")
                for e in T.unroll(columns // 2):
                    sums[e] = T.float32(0)
                for _i in T.serial(rounds):
                    instruction("cuda.wgmma.fence")
                    for part in T.unroll(4):
                        instruction(multiply, sums[0], a[0, 0], b[0, 0], part)
                    instruction("cuda.wgmma.commit")
                    instruction(wait, sums[0], T.int64(1))
                instruction(wait, sums[0], T.int64(0))
                for e in T.unroll(columns // 2):
                    out[block, thread // WARPGROUP, thread % WARPGROUP, e] = sums[e]

    return main


@T.macro
def swizzled_copy(source, target, rows, thread, threads):
    """Rows of 64 positions, whose chunks of 8 are stored as wgmma reads them: chunk c of row r in place c ^ (r % 8)."""
    for i in T.serial((rows * 8 + threads - 1) // threads):
        chunk = i * threads + thread
        if chunk < rows * 8:
            for e in T.vectorized(8):
                target[chunk // 8, (chunk % 8 ^ chunk // 8 % 8) * 8 + e] = source[chunk // 8, chunk % 8 * 8 + e]
