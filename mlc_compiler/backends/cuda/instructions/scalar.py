"""Instructions of one thread: dot products of bytes, approximations, packed conversions, atomic reductions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ....codegen import llvm_ir as ll
from ....codegen.instructions import Operands
from ....codegen.values import F32, I32
from ....ir import dtype as dt
from ....ir.expr import PrimExpr, cast, const
from ....tir import te
from ....tir.intrinsics import Operand, TensorIntrin
from .nvvm import INSTRUCTIONS, emit
from .operands import SHORT, address, as_i32, load, load_registers, store


def dp4a_row(a_dtype: str, b_dtype: str) -> TensorIntrin:
    """``acc += a[0] * b[0] + ... + a[3] * b[3]`` of bytes, in 32 bits."""

    def semantics(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        k = te.reduce_axis(4, "k")
        return te.compute((1,), lambda i: te.sum(te.cast(a[k], "int32") * te.cast(b[k], "int32"), axis=k), name="acc")

    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        (acc,), (x,), (y,) = (load(b, row, operands, i) for i in range(3))
        signs = f"{SHORT[a_dtype][0]}.{SHORT[b_dtype][0]}"
        store(b, row, operands, [emit(b, f"llvm.nvvm.idp4a.{signs}", [x, y, acc])])

    operands = (Operand("acc", (1,), "int32"), Operand("a", (4,), a_dtype), Operand("b", (4,), b_dtype))
    name = f"cuda.dp4a.{SHORT[a_dtype]}.{SHORT[b_dtype]}"
    return TensorIntrin(name, operands, semantics, {"cuda": code}, "sm_70", accumulates=True)


def approximation_row(name: str, intrinsic: str, function: Callable[[PrimExpr], PrimExpr]) -> TensorIntrin:
    """``out = function(x)`` of one float32, approximated by the instruction; subnormal inputs and results are 0."""

    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        store(b, row, operands, [emit(b, intrinsic, load(b, row, operands, 1, F32))])

    def semantics(x: te.Tensor) -> te.Tensor:
        return te.compute((1,), lambda i: function(x[i]), name="out")

    operands = (Operand("out", (1,), "float32"), Operand("x", (1,), "float32"))
    return TensorIntrin(f"cuda.{name}.f32", operands, semantics, {"cuda": code}, INSTRUCTIONS[intrinsic].sm)


MAX_ERROR = {
    "cuda.ex2.approx.f32": 2.0**-22,
    "cuda.lg2.approx.f32": 2.0**-22,
    "cuda.rcp.approx.f32": 2.0**-23,
    "cuda.rsqrt.approx.f32": 2.0**-22,
    "cuda.tanh.approx.f32": 2.0**-10.987,
}
"""Maximum relative error (PTX ISA, "Floating Point Instructions"); of lg2, absolute for arguments in (0.5, 2)."""


def conversion_row(target: str, source: str, intrinsic: str) -> TensorIntrin:
    """Convert two elements by one instruction, rounded to nearest even; to e4m3 with saturation."""

    def semantics(x: te.Tensor) -> te.Tensor:
        return te.compute((2,), lambda i: te.cast(x[i], target), name="out")

    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        pointer, align = address(row, operands, 1), dt.nbytes(source)
        if source == "float32":  # the element of the high half comes first
            inputs = load_registers(b, pointer, F32, 2, align)[::-1]
        else:
            inputs = [b.load(pointer, align=align, typ=INSTRUCTIONS[intrinsic].arguments[0])]
        b.store(emit(b, intrinsic, inputs), address(row, operands, 0), align=dt.nbytes(target))

    operands = (Operand("out", (2,), target), Operand("x", (2,), source))
    name = f"cuda.cvt.{SHORT[target]}x2.{SHORT[source]}x2"
    return TensorIntrin(name, operands, semantics, {"cuda": code}, INSTRUCTIONS[intrinsic].sm)


def reduction_row(dtype: str, *, release: bool) -> TensorIntrin:
    """``out += value`` in global memory, atomically, in any order with other threads' additions.

    release: the thread's earlier writes are visible to a thread that reads the sum and then executes an acquire fence.
    The fence is an instruction of its own: LLVM 22 ignores the ordering of ``atomicrmw``.
    """

    def semantics(value: te.Tensor) -> te.Tensor:
        return te.compute((1,), lambda i: value[i], name="out")

    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        register, operation = (F32, "fadd") if dtype == "float32" else (I32, "add")
        (value,) = load(b, row, operands, 1, register)
        if release:
            b.fence("release", "device")
        b.atomic_rmw(operation, address(row, operands, 0), value, "monotonic")

    operands = (Operand("out", (1,), dtype, scope="global"), Operand("value", (1,), dtype))
    name = f"cuda.red.{'release.' if release else ''}add.{SHORT[dtype]}"
    return TensorIntrin(name, operands, semantics, {"cuda": code}, "sm_70", accumulates=True)


COUNTER = Operand("counter", (1,), "uint32", scope="global")
"""A counter that threads of several blocks update."""


def _increment_row() -> TensorIntrin:
    """``old = counter; counter = 0 if old >= limit else old + 1``, atomically, with relaxed memory order."""

    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        limit = as_i32(b, operands.scalars["limit"])
        store(b, row, operands, [b.atomic_rmw("uinc_wrap", address(row, operands, 1), limit, "monotonic")])

    def old(counter: te.Tensor, limit: PrimExpr) -> te.Tensor:
        return te.compute((1,), lambda i: counter[i], name="old")

    def update(counter: te.Tensor, limit: PrimExpr) -> te.Tensor:
        wrapped = const(0, "uint32")
        return te.compute(
            (1,), lambda i: te.select(counter[i] >= cast("uint32", limit), wrapped, counter[i] + 1), name="counter"
        )

    operands = (Operand("old", (1,), "uint32"), COUNTER)
    return TensorIntrin("cuda.atom.inc.u32", operands, old, {"cuda": code}, "sm_70", scalars=("limit",), update=update)


def _rows() -> Iterator[TensorIntrin]:
    for dtypes in (("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8")):
        yield dp4a_row(*dtypes)
    yield approximation_row("ex2.approx", "llvm.nvvm.ex2.approx.ftz.f32", lambda x: te.call("exp2", x))
    yield approximation_row("lg2.approx", "llvm.nvvm.lg2.approx.ftz.f", lambda x: te.call("log2", x))
    yield approximation_row("rcp.approx", "llvm.nvvm.rcp.approx.ftz.f", lambda x: 1.0 / x)
    yield approximation_row("rsqrt.approx", "llvm.nvvm.rsqrt.approx.ftz.f", te.rsqrt)
    yield approximation_row("tanh.approx", "tanh.approx.f32", te.tanh)
    yield conversion_row("float16", "float32", "llvm.nvvm.ff2f16x2.rn")
    yield conversion_row("bfloat16", "float32", "cvt.rn.bf16x2.f32")
    yield conversion_row("float16", "float8_e4m3fn", "llvm.nvvm.e4m3x2.to.f16x2.rn")
    yield conversion_row("float8_e4m3fn", "float16", "llvm.nvvm.f16x2.to.e4m3x2.rn")
    for dtype in ("float32", "int32", "uint32"):
        yield reduction_row(dtype, release=False)
        yield reduction_row(dtype, release=True)
    yield _increment_row()


SCALAR_INSTRUCTIONS = tuple(_rows())
