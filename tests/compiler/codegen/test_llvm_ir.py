"""LLVM modules as text: what LLVM accepts, what the code computes, and what is refused."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import nullcontext

import llvmlite.binding as llvm
import numpy as np
import pytest

from mlc_compiler.codegen import llvm_ir as ll
from mlc_compiler.codegen.host.module import new_module
from mlc_compiler.codegen.llvm_worker import optimize
from mlc_compiler.codegen.native import optimize as optimized
from mlc_compiler.codegen.values import F16, F32, F64, I1, I8, I16, I32, I64, PTR, VOID, i32, i64
from mlc_compiler.target import Target

HOST = Target("cpu")
FLOATING = "fadd fsub fmul fdiv".split()
NARROW, WIDE = ll.VectorType(I32, 4), ll.VectorType(I64, 4)


def defined(
    result: ll.Type, args: list[ll.Type], module: ll.Module | None = None, name: str = "f"
) -> tuple[ll.Function, ll.IRBuilder]:
    """A function with an empty block, and a builder there."""
    fn = ll.Function(module or new_module(HOST), ll.FunctionType(result, args), name)
    return fn, ll.IRBuilder(fn.append_basic_block("entry"))


def verified(module: ll.Module) -> str:
    """The module as LLVM spells it."""
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    return str(parsed)


class Compiled:
    """The function ``f`` of a module, compiled. It takes int64 values and returns one."""

    def __init__(self, module: ll.Module):
        result, machine = optimized(verified(module), HOST)
        self.engine = llvm.create_mcjit_compiler(result, machine, use_lmm=True)
        self.engine.finalize_object()

    def __call__(self, *args: int) -> int:
        signature = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(args))
        return int(signature(self.engine.get_function_address("f"))(*args))


def computed(emit: Callable[..., ll.Value], *args: int) -> int:
    """The result of a function of int64 values. emit: ``emit(b, *values)``."""
    fn, b = defined(I64, [I64] * len(args))
    b.ret(emit(b, *fn.args))
    return Compiled(fn.module)(*args)


# -- computed values ---------------------------------------------------------------------------------------------------


X, Y, LARGE = -17, 3, 2**64 - 17  # LARGE: X as an unsigned number
RESULTS = {
    **{"add": X + Y, "sub": X - Y, "mul": X * Y, "sdiv": -5, "udiv": LARGE // Y, "srem": -2, "urem": LARGE % Y},
    **{"and_": X & Y, "or_": X | Y, "xor": X ^ Y, "shl": X << Y, "lshr": LARGE >> Y, "ashr": X >> Y},
}


@pytest.mark.parametrize("op", RESULTS)
def test_arithmetic(op: str) -> None:
    assert computed(lambda b, x, y: getattr(b, op)(x, y), X, Y) % 2**64 == RESULTS[op] % 2**64


def test_complement() -> None:
    assert computed(lambda b, x: b.not_(x), 5) == ~5


@pytest.mark.parametrize("op", ["==", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("pair", [(-1, 1), (1, -1), (2, 2)])
def test_comparisons(op: str, pair: tuple[int, int]) -> None:
    compare = eval(f"lambda x, y: int(x {op} y)")
    assert computed(lambda b, x, y: b.zext(b.icmp_signed(op, x, y), I64), *pair) == compare(*pair)
    unsigned = [x % 2**64 for x in pair]
    assert computed(lambda b, x, y: b.zext(b.icmp_unsigned(op, x, y), I64), *pair) == compare(*unsigned)

    def floats(b: ll.IRBuilder, x: ll.Value, y: ll.Value, ordered: bool) -> ll.Value:
        method = b.fcmp_ordered if ordered else b.fcmp_unordered
        return b.zext(method(op, b.sitofp(x, F64), b.sitofp(y, F64)), I64)

    for ordered in (True, False):
        assert computed(lambda b, x, y, ordered=ordered: floats(b, x, y, ordered), *pair) == compare(*pair)


@pytest.mark.parametrize("value", [0.1, -0.0, float("inf"), 65519.0, 1e-7])
def test_constants_are_rounded_to_their_type(value: float) -> None:
    for kind, bits, dtype in ((F16, I16, np.float16), (F32, I32, np.float32), (F64, I64, np.float64)):
        got = computed(lambda b, kind=kind, bits=bits: b.zext(b.bitcast(ll.Constant(kind, value), bits), I64))
        assert got % 2**64 == int(np.array(value, dtype).view(f"uint{bits.width}"))


def test_casts() -> None:
    assert computed(lambda b, x: b.sext(b.trunc(x, I8), I64), 0x1FF) == -1
    assert computed(lambda b, x: b.zext(b.trunc(x, I8), I64), 0x1FF) == 255
    to_bits = lambda b, x: b.sext(b.bitcast(b.fptrunc(b.uitofp(x, F64), F32), I32), I64)  # noqa: E731
    assert computed(to_bits, 3) == int(np.float32(3).view(np.int32))
    assert computed(lambda b, x: b.bitcast(b.fpext(b.sitofp(x, F32), F64), I64), -3) == int(
        np.float64(-3).view(np.int64)
    )
    assert computed(lambda b, x: b.bitcast(b.fneg(b.bitcast(x, F64)), I64), 0) == -(2**63)


def test_floating_point_arithmetic() -> None:
    def emit(b: ll.IRBuilder, x: ll.Value, y: ll.Value) -> ll.Value:
        p, q = b.sitofp(x, F64), b.sitofp(y, F64)
        for op in FLOATING:
            p = getattr(b, op)(p, q, flags=("nsz", "contract"))
        return b.bitcast(p, I64)

    assert computed(emit, 10, 4) == int(np.float64(((10.0 + 4) - 4) * 4 / 4).view(np.int64))


def test_a_loop_and_branches() -> None:
    """The sum of the numbers below n, of even ones halved."""

    def emit(b: ll.IRBuilder, n: ll.Value) -> ll.Value:
        before = b.block
        body, done = b.append_basic_block("body"), b.append_basic_block("done")
        b.branch(body)
        b.position_at_end(body)
        i, total = b.phi(I64, name="i"), b.phi(I64)
        for node in (i, total):
            node.add_incoming(i64(0), before)
        with b.if_else(b.icmp_unsigned("==", b.and_(i, i64(1)), i64(0))) as (then, otherwise):
            with then:
                half, of_even = b.ashr(i, i64(1)), b.block
            with otherwise:
                of_odd = b.block
        term = b.phi(I64)
        term.add_incoming(half, of_even)
        term.add_incoming(i, of_odd)
        after, following = b.add(total, term), b.add(i, i64(1), flags=["nsw"])
        i.add_incoming(following, b.block)
        total.add_incoming(after, b.block)
        latch = b.cbranch(b.icmp_signed("<", following, n), body, done)
        latch.set_metadata("llvm.loop", b.module.add_loop_metadata(["llvm.loop.unroll.disable"]))
        b.position_at_end(done)
        return after

    assert computed(emit, 10) == sum(i // 2 if i % 2 == 0 else i for i in range(10))


@pytest.mark.parametrize("likely", [None, True, False])
def test_a_return_under_a_condition(likely: bool | None) -> None:
    def emit(b: ll.IRBuilder, x: ll.Value) -> ll.Value:
        with b.if_then(b.icmp_signed("<", x, i64(0)), likely=likely):
            b.ret(i64(-1))
        return b.select(b.icmp_signed(">", x, i64(9)), i64(9), x)

    assert [computed(emit, x) for x in (-5, 5, 50)] == [-1, 5, 9]


def test_memory() -> None:
    """Slots of the entry block are made later; what is first there, last of all."""

    def emit(b: ll.IRBuilder, x: ll.Value) -> ll.Value:
        with b.if_then(b.icmp_signed(">", x, i64(0))):
            with b.goto_entry_block():
                slot = b.alloca(ll.ArrayType(I64, 2), "slot of x", align=16)
            with b.goto_entry_start():
                first = b.alloca(I64)
                b.store(i64(7), first)
            second = b.gep(slot, [i64(1)], source_etype=I64)
            b.store(x, second, align=8)
            sum_ = b.add(b.load(second, align=8, typ=I64), b.load(first, typ=I64))
            b.ret(b.add(sum_, b.ptrtoint(b.inttoptr(x, PTR), I64)))
        return i64(0)

    assert [computed(emit, x) for x in (5, -5)] == [17, 0]


def test_atomic_accesses() -> None:
    def emit(b: ll.IRBuilder, x: ll.Value) -> ll.Value:
        slot = b.alloca(I64)
        b.store(x, slot)
        swap = b.cmpxchg(slot, x, i64(20), "acq_rel", "monotonic")
        before = b.atomic_rmw("add", slot, i64(1), "seq_cst")
        b.fence("acquire", "singlethread")
        parts = (b.extract_value(swap, 0), b.zext(b.extract_value(swap, 1), I64), before)
        total = b.load_atomic(slot, "acquire", 8, typ=I64)
        for part in parts:
            total = b.add(b.mul(total, i64(100)), part)
        return total

    assert computed(emit, 3) == 21_03_01_20


def test_vectors() -> None:
    """Constants of equal and of different elements, shuffles, single elements, masks of comparisons."""

    def emit(b: ll.IRBuilder, x: ll.Value) -> ll.Value:
        single = b.insert_element(ll.Constant(WIDE, ll.Undefined), x, i32(0))
        all_ = b.shuffle_vector(single, ll.Constant(WIDE, ll.Undefined), ll.Constant(NARROW, [0] * 4))
        steps = b.add(all_, ll.Constant(WIDE, [i64(i) for i in range(4)]))
        few = b.select(b.not_(b.icmp_signed(">", steps, ll.Constant(WIDE, [11] * 4))), steps, ll.Constant(WIDE, None))
        return b.add(b.extract_element(few, i32(1)), b.extract_element(few, i32(2)))

    assert computed(emit, 10) == 11


def test_globals_and_calls() -> None:
    module = new_module(HOST)
    raw = b'quoted "\\ and \0\xff bytes'
    text = ll.GlobalVariable(module, ll.ArrayType(I8, len(raw)), "a name, quoted")
    text.initializer, text.global_constant, text.linkage = ll.Constant(text.value_type, raw), True, "internal"
    zeros = ll.GlobalVariable(module, ll.ArrayType(I64, 4), "zeros")
    zeros.initializer, zeros.align, zeros.linkage = ll.Constant(zeros.value_type, None), 64, "internal"
    callee, b = defined(I64, [PTR, I64], module, "byte of")
    callee.linkage, callee.args[0].attributes = "internal", {"noalias", "align 1"}
    callee.attributes |= {"noinline", '"own"="x"'}
    callee.args[1].rename("place")
    b.ret(b.zext(b.load(b.gep(callee.args[0], [callee.args[1]], source_etype=I8), typ=I8), I64))
    fields = [text, callee, i64(3)]
    table = ll.GlobalVariable(module, ll.LiteralStructType([f.type for f in fields]), "table")
    table.initializer, table.linkage = ll.Constant(table.value_type, fields), "internal"
    fn, b = defined(I64, [I64], module)
    address = b.load(b.gep(table, [i64(1)], source_etype=PTR), typ=PTR)
    called = b.call_pointer(address, callee.function_type, [b.load(table, typ=PTR), fn.args[0]])
    b.ret(b.add(called, b.load(zeros, typ=I64)))
    function = Compiled(module)
    assert [function(i) for i in range(len(raw))] == list(raw)


def test_inline_assembly() -> None:
    """LLVM reads the braces and dollars; whether the processor has the instruction does not matter."""
    fn, b = defined(VOID, [])
    asm = ll.InlineAsm(ll.FunctionType(VOID, []), "", "~{memory}", side_effect=True)
    b.call(asm, [], attrs=("convergent",))
    b.ret_void()
    assert 'call void asm sideeffect "", "~{memory}"()' in verified(fn.module)


# -- accepted by LLVM --------------------------------------------------------------------------------------------------


def test_declarations() -> None:
    module = new_module(HOST)
    kernel = ll.Function(module, ll.FunctionType(VOID, [ll.PointerType(1)]), "kernel")
    kernel.calling_convention = "ptx_kernel"
    printf = ll.Function(module, ll.FunctionType(I32, [PTR], var_arg=True), "printf")
    printf.linkage = "extern_weak"
    shared = ll.GlobalVariable(module, ll.ArrayType(I8, 0), "shared", addrspace=3)
    local = ll.GlobalVariable(module, I32, "local")
    local.storage_class, local.initializer = "thread_local", ll.Constant(I32, None)
    fn, b = defined(VOID, [], module)
    b.call(printf, [local, i64(1), ll.Constant(F64, 0.5)])
    b.addrspacecast(shared, PTR)
    unreachable = b.append_basic_block("unreachable")
    b.ret_void()
    b.position_at_end(unreachable)
    b.unreachable()
    text = verified(module)
    assert "declare ptx_kernel void @kernel(ptr addrspace(1))" in text
    assert "declare extern_weak i32 @printf(ptr, ...)" in text
    assert "@shared = external addrspace(3) global [0 x i8]" in text
    assert "@local = thread_local global i32 0" in text
    assert [f.name for f in module.functions if f.is_declaration] == ["kernel", "printf"]
    assert module.get_function("f") is fn and module.get_function("g") is None
    assert [module.get_unique_name(name) for name in ("shared", "other")] == ["shared.1", "other"]


def test_types_are_unique() -> None:
    assert ll.VectorType(I32, 4) is NARROW and ll.IntType(32) is I32 and ll.HalfType() is F16
    assert ll.FunctionType(VOID, [I32]) is not ll.FunctionType(VOID, [I32], var_arg=True)
    assert str(ll.LiteralStructType([NARROW, ll.ArrayType(ll.BFloatType(), 2), ll.PointerType(3)])) == (
        "{<4 x i32>, [2 x bfloat], ptr addrspace(3)}"
    )


@pytest.mark.parametrize("name", ["x", "x.1", ".1", 'a "quoted" \\ name', "größe", "1", ""])
def test_any_names(name: str) -> None:
    """Values of the same name, and of names that others might get."""
    fn, b = defined(I64, [I64, I64])
    for arg in fn.args:
        arg.rename(name)
    block = b.append_basic_block(name)
    b.branch(block)
    b.position_at_end(block)
    node = b.phi(I64, name)
    node.add_incoming(b_sum := fn.args[1], fn.entry_basic_block)
    b.ret(b.add(b.mul(fn.args[0], i64(100)), b.add(node, b_sum)))
    assert Compiled(fn.module)(1, 2) == 104


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "emit",
    [
        *(lambda b, x, p, op=op: getattr(b, op)(x, i32(1)) for op in RESULTS),
        *(lambda b, x, p, op=op: getattr(b, op)(ll.Constant(F32, 1), ll.Constant(F64, 1)) for op in FLOATING),
        lambda b, x, p: b.icmp_signed("<", x, i32(1)),
        lambda b, x, p: b.fcmp_ordered("<", ll.Constant(F32, 1), ll.Constant(F64, 1)),
        lambda b, x, p: b.select(ll.Constant(I1, 1), x, i32(1)),
        lambda b, x, p: b.phi(I64).add_incoming(i32(0), b.block),
        lambda b, x, p: b.cmpxchg(p, x, i32(0), "acq_rel", "monotonic"),
        lambda b, x, p: b.load(x, typ=I64),
        lambda b, x, p: b.load_atomic(x, "acquire", 8, typ=I64),
        lambda b, x, p: b.atomic_rmw("add", x, x, "acquire"),
        lambda b, x, p: b.store(p, x),
        lambda b, x, p: b.gep(x, [x], source_etype=I8),
        lambda b, x, p: b.call(b.function, [p, x]),
        lambda b, x, p: b.call(b.function, [x]),
        lambda b, x, p: b.call(b.function, [x, p, p]),
        lambda b, x, p: b.call_pointer(x, b.function.function_type, [x, p]),
    ],
)
def test_operands_of_wrong_types(emit: Callable[..., object]) -> None:
    fn, b = defined(VOID, [I64, PTR])
    with pytest.raises((TypeError, ValueError)):
        emit(b, *fn.args)


@pytest.mark.parametrize(
    ("kind", "value"),
    [(I32, 1.5), (I32, "1"), (NARROW, [1, 2, 3]), (PTR, 1), (VOID, 0), (ll.FunctionType(VOID, []), 0)],
)
def test_constants_that_a_type_lacks(kind: ll.Type, value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        ll.Constant(kind, value)


@pytest.mark.parametrize("inside", [True, False])
def test_instructions_after_a_terminator(inside: bool) -> None:
    fn, b = defined(VOID, [])
    with b.goto_block(fn.entry_basic_block) if inside else nullcontext():
        b.ret_void()
        with pytest.raises(ValueError, match="after the terminator"):
            b.alloca(I64)
        with pytest.raises(ValueError, match="second terminator"):
            b.ret_void()


def test_a_name_is_taken_once() -> None:
    module = new_module(HOST)
    ll.GlobalVariable(module, I32, "x")
    with pytest.raises(ValueError, match="'x'"):
        ll.Function(module, ll.FunctionType(VOID, []), "x")


def test_an_initializer_has_the_type_of_its_variable() -> None:
    module = new_module(HOST)
    ll.GlobalVariable(module, I32, "x").initializer = i64(0)
    with pytest.raises(TypeError, match="'x' is a i32"):
        str(module)


def test_llvm_refuses_a_block_without_a_terminator() -> None:
    fn, _ = defined(VOID, [])
    with pytest.raises(RuntimeError):
        optimize(str(fn.module), optimized("", HOST)[1])
