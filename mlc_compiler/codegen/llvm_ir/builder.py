"""Builder of the instructions of a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache

from .types import FunctionType, IntType, LiteralStructType, PointerType, Type, VectorType, VoidType
from .values import PTR, Block, Constant, Function, InlineAsm, Module, Phi, Terminator, Value, aligned

I1, I32, VOID = IntType(1), IntType(32), VoidType()
_EQUAL = {"==": "eq", "!=": "ne"}
_ORDERS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_SIGNED = _EQUAL | {op: f"s{name}" for op, name in _ORDERS.items()}
_UNSIGNED = _EQUAL | {op: f"u{name}" for op, name in _ORDERS.items()}
_ORDERED = {op: f"o{name}" for op, name in (_EQUAL | _ORDERS).items()}
_UNORDERED = {op: f"u{name}" for op, name in (_EQUAL | _ORDERS).items()} | {"uno": "uno"}
_LIKELY, _UNLIKELY = 99, 1  # weights of branches


class _Terminated(list[str | Phi]):
    """The instructions of a block that takes no more."""

    def append(self, _: str | Phi) -> None:
        raise ValueError("an instruction after the terminator of a block")


_CLOSED = _Terminated()


def _binary(op: str) -> Callable[[IRBuilder, Value, Value], Value]:
    def emit(self: IRBuilder, a: Value, b: Value) -> Value:
        _same_type(a, b)
        return self._result(a.type, f"{op} {a.type.text} {a.ref}, {b.ref}")

    return emit


def _cast(op: str) -> Callable[[IRBuilder, Value, Type], Value]:
    def emit(self: IRBuilder, value: Value, to: Type) -> Value:
        if value.type is to:
            return value
        return self._result(to, f"{op} {value.type.text} {value.ref} to {to.text}")

    return emit


class IRBuilder:
    """Adds instructions at the end of a block.

    The methods are named after the instructions, whose result they return; see LLVM's reference. Operands of wrong
    types raise TypeError or ValueError. Casts to the type of the operand are left out.
    """

    def __init__(self, block: Block):
        self.position_at_end(block)

    @property
    def module(self) -> Module:
        return self.function.module

    # -- blocks -------------------------------------------------------------------------------------------------

    def position_at_end(self, block: Block) -> None:
        """Go on at the end of a block, which has no terminator if instructions follow."""
        self.block = block
        self.function = block.function
        self._numbers = block.function.numbers
        self._lines: list[str | Phi] = block.instructions if block.terminator is None else _CLOSED

    def append_basic_block(self, name: str) -> Block:
        """Add a block to the function; the position stays."""
        return self.function.append_basic_block(name)

    @contextmanager
    def goto_block(self, block: Block) -> Iterator[None]:
        """Context manager: at the end of another block, before its terminator."""
        before = self.block
        self.position_at_end(block)
        self._lines = block.instructions
        yield
        self.position_at_end(before)

    def goto_entry_block(self) -> AbstractContextManager[None]:
        """Context manager: at the end of the function's first block, before its terminator."""
        return self.goto_block(self.function.entry_basic_block)

    @contextmanager
    def goto_entry_start(self) -> Iterator[None]:
        """Context manager: at the start of the function's first block."""
        before, entry = self.block, self.function.entry_basic_block
        self.block, self._lines = entry, []
        yield
        entry.instructions[:0] = self._lines
        self.position_at_end(before)

    @contextmanager
    def if_then(self, condition: Value, likely: bool | None = None) -> Iterator[None]:
        """Context manager for instructions under a condition. likely: what LLVM assumes of the condition."""
        inside, end = self.append_basic_block("if"), self.append_basic_block("endif")
        branch = self.cbranch(condition, inside, end)
        if likely is not None:
            weights = (_LIKELY, _UNLIKELY) if likely else (_UNLIKELY, _LIKELY)
            node = self.module.add_metadata(["branch_weights", *(Constant(I32, w) for w in weights)])
            branch.set_metadata("prof", node)
        with self._until(inside, end):
            yield
        self.position_at_end(end)

    @contextmanager
    def if_else(self, condition: Value) -> Iterator[tuple[AbstractContextManager[None], AbstractContextManager[None]]]:
        """Context manager that yields those for instructions under a condition, and under its negation."""
        then, otherwise, end = (self.append_basic_block(name) for name in ("if", "else", "endif"))
        self.cbranch(condition, then, otherwise)
        yield self._until(then, end), self._until(otherwise, end)
        self.position_at_end(end)

    @contextmanager
    def _until(self, block: Block, end: Block) -> Iterator[None]:
        self.position_at_end(block)
        yield
        if self.block.terminator is None:
            self.branch(end)

    # -- terminators --------------------------------------------------------------------------------------------

    def branch(self, to: Block) -> Terminator:
        return self._terminate(f"br label %{to.label}")

    def cbranch(self, condition: Value, then: Block, otherwise: Block) -> Terminator:
        """A conditional ``br``."""
        return self._terminate(f"br {condition.typed}, label %{then.label}, label %{otherwise.label}")

    def ret(self, value: Value) -> Terminator:
        return self._terminate(f"ret {value.typed}")

    def ret_void(self) -> Terminator:
        return self._terminate("ret void")

    def unreachable(self) -> Terminator:
        return self._terminate("unreachable")

    def _terminate(self, text: str) -> Terminator:
        if self.block.terminator is not None:
            raise ValueError("a second terminator of a block")
        self.block.terminator = terminator = Terminator(text)
        self._lines = _CLOSED
        return terminator

    # -- arithmetic ---------------------------------------------------------------------------------------------

    sub, mul, sdiv, udiv, srem, urem = map(_binary, ("sub", "mul", "sdiv", "udiv", "srem", "urem"))
    and_, or_, xor, shl, lshr, ashr = map(_binary, ("and", "or", "xor", "shl", "lshr", "ashr"))

    def add(self, a: Value, b: Value, flags: Sequence[str] = ()) -> Value:
        return self._flagged("add", a, b, flags)

    def fadd(self, a: Value, b: Value, flags: Sequence[str] = ()) -> Value:
        return self._flagged("fadd", a, b, flags)

    def fsub(self, a: Value, b: Value, flags: Sequence[str] = ()) -> Value:
        return self._flagged("fsub", a, b, flags)

    def fmul(self, a: Value, b: Value, flags: Sequence[str] = ()) -> Value:
        return self._flagged("fmul", a, b, flags)

    def fdiv(self, a: Value, b: Value, flags: Sequence[str] = ()) -> Value:
        return self._flagged("fdiv", a, b, flags)

    def _flagged(self, op: str, a: Value, b: Value, flags: Sequence[str]) -> Value:
        _same_type(a, b)
        if flags:
            op = " ".join([op, *flags])
        return self._result(a.type, f"{op} {a.type.text} {a.ref}, {b.ref}")

    def fneg(self, value: Value) -> Value:
        return self._result(value.type, f"fneg {value.typed}")

    def not_(self, value: Value) -> Value:
        """All bits inverted, by ``xor``."""
        return self.xor(value, _all_ones(value.type))

    # -- comparisons --------------------------------------------------------------------------------------------

    def icmp_signed(self, op: str, a: Value, b: Value) -> Value:
        """``icmp`` of signed integers. op: ``==``, ``!=``, ``<``, ``<=``, ``>`` or ``>=``."""
        return self._compare("icmp", _SIGNED[op], a, b)

    def icmp_unsigned(self, op: str, a: Value, b: Value) -> Value:
        """``icmp`` of unsigned integers or pointers."""
        return self._compare("icmp", _UNSIGNED[op], a, b)

    def fcmp_ordered(self, op: str, a: Value, b: Value) -> Value:
        """``fcmp`` that is false for a NaN."""
        return self._compare("fcmp", _ORDERED[op], a, b)

    def fcmp_unordered(self, op: str, a: Value, b: Value) -> Value:
        """``fcmp`` that is true for a NaN. op: also ``uno``, whether one is a NaN."""
        return self._compare("fcmp", _UNORDERED[op], a, b)

    def _compare(self, kind: str, op: str, a: Value, b: Value) -> Value:
        _same_type(a, b)
        return self._result(_truth_type(a.type), f"{kind} {op} {a.type.text} {a.ref}, {b.ref}")

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        _same_type(a, b)
        kind = a.type.text
        return self._result(a.type, f"select {condition.type.text} {condition.ref}, {kind} {a.ref}, {kind} {b.ref}")

    # -- casts --------------------------------------------------------------------------------------------------

    trunc, zext, sext, bitcast = map(_cast, ("trunc", "zext", "sext", "bitcast"))
    fptrunc, fpext, sitofp, uitofp = map(_cast, ("fptrunc", "fpext", "sitofp", "uitofp"))
    ptrtoint, inttoptr, addrspacecast = map(_cast, ("ptrtoint", "inttoptr", "addrspacecast"))

    # -- memory -------------------------------------------------------------------------------------------------

    def alloca(self, element: Type, name: str = "", align: int | None = None) -> Value:
        ref = self.function.local(name)
        self._lines.append(f"{ref} = alloca {element.text}{aligned(align)}")
        return Value(PTR, ref)

    def gep(self, pointer: Value, indices: Sequence[Value], source_etype: Type) -> Value:
        """``getelementptr``. source_etype: the type that the first index counts."""
        _check_pointer(pointer)
        offsets = ", ".join([f"{i.type.text} {i.ref}" for i in indices])
        text = f"getelementptr {source_etype.text}, {pointer.type.text} {pointer.ref}, {offsets}"
        return self._result(pointer.type, text)

    def load(self, pointer: Value, *, typ: Type, align: int | None = None) -> Value:
        _check_pointer(pointer)
        return self._result(typ, f"load {typ.text}, {pointer.type.text} {pointer.ref}{aligned(align)}")

    def store(self, value: Value, pointer: Value, align: int | None = None) -> None:
        _check_pointer(pointer)
        self._lines.append(f"store {value.type.text} {value.ref}, {pointer.type.text} {pointer.ref}{aligned(align)}")

    def load_atomic(self, pointer: Value, ordering: str, align: int, *, typ: Type) -> Value:
        _check_pointer(pointer)
        return self._result(typ, f"load atomic {typ.text}, {pointer.typed} {ordering}{aligned(align)}")

    def atomic_rmw(self, op: str, pointer: Value, value: Value, ordering: str) -> Value:
        """``atomicrmw``. op: its operation, such as ``xchg``."""
        _check_pointer(pointer)
        return self._result(value.type, f"atomicrmw {op} {pointer.typed}, {value.typed} {ordering}")

    def cmpxchg(self, pointer: Value, old: Value, new: Value, ordering: str, failure: str) -> Value:
        """Returns a structure of what was in memory and whether it was ``old``."""
        _check_pointer(pointer)
        _same_type(old, new)
        text = f"cmpxchg {pointer.typed}, {old.typed}, {new.typed} {ordering} {failure}"
        return self._result(LiteralStructType([old.type, I1]), text)

    def fence(self, ordering: str, scope: str) -> None:
        """``fence``. scope: LLVM's name of the threads that it orders accesses of, such as ``device``."""
        self._lines.append(f'fence syncscope("{scope}") {ordering}')

    # -- vectors and structures ---------------------------------------------------------------------------------

    def extract_element(self, vector: Value, index: Value) -> Value:
        assert isinstance(vector.type, VectorType)
        return self._result(vector.type.element, f"extractelement {vector.typed}, {index.typed}")

    def insert_element(self, vector: Value, value: Value, index: Value) -> Value:
        return self._result(vector.type, f"insertelement {vector.typed}, {value.typed}, {index.typed}")

    def shuffle_vector(self, a: Value, b: Value, mask: Constant) -> Value:
        """``shufflevector``. mask: i32 indices into the elements of both vectors."""
        assert isinstance(a.type, VectorType) and isinstance(mask.type, VectorType)
        _same_type(a, b)
        result = VectorType(a.type.element, mask.type.count)
        return self._result(result, f"shufflevector {a.typed}, {b.typed}, {mask.typed}")

    def extract_value(self, structure: Value, index: int) -> Value:
        assert isinstance(structure.type, LiteralStructType)
        return self._result(structure.type.elements[index], f"extractvalue {structure.typed}, {index}")

    # -- others -------------------------------------------------------------------------------------------------

    def phi(self, type_: Type, name: str = "") -> Phi:
        """A phi node, without edges yet."""
        node = Phi(type_, self.function.local(name))
        self._lines.append(node)
        return node

    def call(self, callee: Function | InlineAsm, args: Sequence[Value], attrs: Sequence[str] = ()) -> Value:
        """Call a function or inline assembly. attrs: function attributes of the call."""
        return self._call(callee.ref, callee.function_type, args, attrs)

    def call_pointer(self, pointer: Value, function_type: FunctionType, args: Sequence[Value]) -> Value:
        """Call the function at an address."""
        _check_pointer(pointer)
        return self._call(pointer.ref, function_type, args, ())

    def _call(self, callee: str, signature: FunctionType, args: Sequence[Value], attrs: Sequence[str]) -> Value:
        expected = signature.args
        given = tuple([a.type for a in args])
        if given != expected and not (signature.var_arg and given[: len(expected)] == expected):
            raise TypeError(f"call of {callee}, a {signature}, with ({', '.join(map(str, given))})")
        result = signature.return_type
        kind = signature.text if signature.var_arg else result.text
        text = f"call {kind} {callee}({', '.join([f'{a.type.text} {a.ref}' for a in args])})"
        if attrs:
            text = " ".join([text, *attrs])
        if result is not VOID:
            return self._result(result, text)
        self._lines.append(text)
        return Value(VOID, "")

    def _result(self, type_: Type, text: str) -> Value:
        ref = f"%.{next(self._numbers)}"
        self._lines.append(f"{ref} = {text}")
        return Value(type_, ref)


def _same_type(a: Value, b: Value) -> None:
    if a.type is not b.type:
        raise ValueError(f"operands of different types: {a!r}, {b!r}")


def _check_pointer(value: Value) -> None:
    if not isinstance(value.type, PointerType):
        raise TypeError(f"{value!r} is not a pointer")


@cache
def _truth_type(compared: Type) -> Type:
    return VectorType(I1, compared.count) if isinstance(compared, VectorType) else I1


@cache
def _all_ones(type_: Type) -> Constant:
    return Constant(type_, [-1] * type_.count if isinstance(type_, VectorType) else -1)
