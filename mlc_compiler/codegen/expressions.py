"""Scalar expressions to LLVM values; inside a vectorized loop, to vectors over its lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir as ll

from mlc_errors import MLCError

from ..ir import dtype as dt
from ..ir.expr import BinaryOp, Call, Cast, FloatImm, IntImm, Let, Not, PrimExpr, Select, Var
from ..ir.simplify import Analyzer
from ..ir.visitor import walk
from ..tir.calling import flat_index
from ..tir.intrinsics import INTRINSICS, Intrinsic, Operand
from ..tir.nodes import Buffer, BufferLoad
from . import values as v
from .values import I1, I32, I64, PTR


class CodegenError(MLCError):
    """An expression or statement that has no code on this target."""


@dataclass
class Lanes:
    """The vectorized loop being emitted: its variable and number of lanes."""

    var: Var
    count: int


_FLOAT_OPS = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}
_INT_OPS = {"+": "add", "-": "sub", "*": "mul", "&": "and_", "|": "or_", "^": "xor", "<<": "shl"}
_UNARY_INTRINSICS = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "rint", "abs": "fabs"}


class ExprEmitter:
    """Emits expressions at the builder's position. ``env`` holds the values of variables, ``buffers`` base pointers."""

    def __init__(self, builder: ll.IRBuilder):
        self.b = builder
        self.env: dict[int, ll.Value] = {}
        self.buffers: dict[int, ll.Value] = {}
        self.lanes: Lanes | None = None
        self.mask: ll.Value | None = None
        self.analyzer = Analyzer()
        self.fast: tuple[str, ...] = ("contract",)

    # -- dispatch -----------------------------------------------------------------------------------------------

    def __call__(self, e: PrimExpr) -> ll.Value:
        method: Callable[[PrimExpr], ll.Value] | None = getattr(self, f"emit_{type(e).__name__}", None)
        if method is None:
            raise CodegenError(f"no code for {type(e).__name__}: {e!r}")
        return method(e)

    def emit_Var(self, e: Var) -> ll.Value:
        if self.lanes is not None and e is self.lanes.var:
            steps = [ll.Constant(I64, i) for i in range(self.lanes.count)]
            return ll.Constant(ll.VectorType(I64, self.lanes.count), steps) if self.lanes.count > 1 else steps[0]
        if id(e) not in self.env:
            raise CodegenError(f"variable {e.name!r} has no value here")
        return self.env[id(e)]

    def emit_ReduceAxis(self, e: Var) -> ll.Value:
        return self.emit_Var(e)

    def emit_IntImm(self, e: IntImm) -> ll.Value:
        return ll.Constant(v.value_type(e.dtype), e.value)

    def emit_FloatImm(self, e: FloatImm) -> ll.Value:
        if e.dtype == "bfloat16":
            return v.convert(self.b, ll.Constant(v.F32, e.value), "float32", "bfloat16")
        return ll.Constant(v.value_type(e.dtype), e.value)

    def emit_Cast(self, e: Cast) -> ll.Value:
        return v.convert(self.b, self(e.value), e.value.dtype, e.dtype)

    def emit_Not(self, e: Not) -> ll.Value:
        return self.b.not_(self(e.value))

    def emit_Let(self, e: Let) -> ll.Value:
        self.env[id(e.var)] = self(e.value)
        return self(e.body)

    def emit_Select(self, e: Select) -> ll.Value:
        c, a, d = v.same_lanes(self.b, self(e.condition), self(e.true_value), self(e.false_value))
        return self.b.select(c, a, d)

    # -- arithmetic ---------------------------------------------------------------------------------------------

    def emit_BinaryOp(self, e: BinaryOp) -> ll.Value:
        a, d = v.same_lanes(self.b, self(e.a), self(e.b))
        if e.a.dtype == "bfloat16":
            return self._via_f32(e, a, d)
        return self.arithmetic(e.op, a, d, e.a.dtype)

    def _via_f32(self, e: BinaryOp, a: ll.Value, d: ll.Value) -> ll.Value:
        a, d = (v.convert(self.b, x, "bfloat16", "float32") for x in (a, d))
        result = self.arithmetic(e.op, a, d, "float32")
        return result if e.dtype == "bool" else v.convert(self.b, result, "float32", "bfloat16")

    def arithmetic(self, op: str, a: ll.Value, d: ll.Value, dtype: str) -> ll.Value:
        """``a op d`` of operands of one dtype and lane count."""
        b = self.b
        if op in ("==", "!=", "<", "<=", ">", ">="):
            return self._compare(op, a, d, dtype)
        if op in ("and", "or"):
            return b.and_(a, d) if op == "and" else b.or_(a, d)
        if op in ("min", "max"):
            return b.select(self._compare("<" if op == "min" else ">", a, d, dtype), a, d)
        if dt.is_float(dtype):
            if op not in _FLOAT_OPS:
                raise CodegenError(f"operator {op} is not defined for {dtype}")
            return getattr(b, _FLOAT_OPS[op])(a, d, flags=self.fast)
        if op in _INT_OPS:
            return getattr(b, _INT_OPS[op])(a, d)
        if op == ">>":
            return b.ashr(a, d) if dt.is_signed(dtype) else b.lshr(a, d)
        return self._division(op, a, d, dtype)

    def _compare(self, op: str, a: ll.Value, d: ll.Value, dtype: str) -> ll.Value:
        if dt.is_float(dtype):
            return self.b.fcmp_unordered(op, a, d) if op == "!=" else self.b.fcmp_ordered(op, a, d)
        return (self.b.icmp_signed if dt.is_signed(dtype) else self.b.icmp_unsigned)(op, a, d)

    def _division(self, op: str, a: ll.Value, d: ll.Value, dtype: str) -> ll.Value:
        """Floor division and modulo; a power of two shifts and masks."""
        b = self.b
        power = _power_of_two(d)
        if power is not None:
            lanes = v.lanes_of(a)
            element = v.value_type(dtype)
            if op == "%":
                return b.and_(a, v.constant(element, (1 << power) - 1, lanes))
            shift = v.constant(element, power, lanes)
            return b.ashr(a, shift) if dt.is_signed(dtype) else b.lshr(a, shift)
        if not dt.is_signed(dtype):
            return b.udiv(a, d) if op == "//" else b.urem(a, d)
        quotient, remainder = b.sdiv(a, d), b.srem(a, d)
        zero = v.constant(v.value_type(dtype), 0, v.lanes_of(a))
        differ = b.icmp_signed("<", b.xor(remainder, d), zero)
        adjust = b.and_(b.icmp_signed("!=", remainder, zero), differ)
        if op == "//":
            return b.sub(quotient, b.zext(adjust, quotient.type))
        return b.add(remainder, b.select(adjust, d, zero))

    # -- calls --------------------------------------------------------------------------------------------------

    def emit_Call(self, e: Call) -> ll.Value:
        if e.op == "if_then_else":
            return self._lazy_select(e)
        if e.op.startswith("intrinsic."):
            return self._instruction(INTRINSICS[e.op.removeprefix("intrinsic.")], e.args)
        args = v.same_lanes(self.b, *(self(a) for a in e.args))
        if e.op in _UNARY_INTRINSICS:
            name = f"llvm.{_UNARY_INTRINSICS[e.op]}.{v.type_suffix(args[0].type)}"
            return v.intrinsic(self.b, name, args, args[0].type)
        if e.op == "fma":
            return v.intrinsic(self.b, f"llvm.fma.{v.type_suffix(args[0].type)}", args, args[0].type)
        if e.op == "reinterpret":
            return self.b.bitcast(args[0], v.vector_of(v.value_type(e.dtype), v.lanes_of(args[0])))
        raise CodegenError(f"no code for the function {e.op!r} in {e.dtype}")

    def _instruction(self, row: Intrinsic, args: Sequence[PrimExpr]) -> ll.Value:
        """Load the operands as vectors, run the instruction, store its result over the first operand."""
        pointers = [self._address_of(a) for a in args]
        operands = row.operands if row.accumulates else row.operands[1:]
        addresses = pointers if row.accumulates else pointers[1:]
        types = [v.parse_type(t) for t in row.types]
        loaded = [self._operand(p, o, t) for p, o, t in zip(addresses, operands, types, strict=True)]
        result = v.spell(self.b, row.llvm, loaded)
        self.b.store(result, pointers[0], align=dt.nbytes(row.operands[0].dtype))
        return result

    def _address_of(self, e: PrimExpr) -> ll.Value:
        assert isinstance(e, Call) and isinstance(e.args[0], BufferLoad)
        load = e.args[0]
        return self.address(load.buffer, self(flat_index(load.buffer, load.indices)))

    def _operand(self, pointer: ll.Value, operand: Operand, to: ll.VectorType) -> ll.Value:
        align = dt.nbytes(operand.dtype)
        if not operand.broadcast:
            return self.b.load(pointer, align=align, typ=to)
        scalar = self.b.load(pointer, align=align, typ=ll.IntType(operand.broadcast))
        repeated = v.splat(self.b, scalar, to.count * to.element.width // operand.broadcast)
        return self.b.bitcast(repeated, to)

    def _lazy_select(self, e: Call) -> ll.Value:
        condition = self(e.args[0])
        if v.lanes_of(condition) > 1:
            a = self.under(condition, lambda: self(e.args[1]))
            d = self.under(self.b.not_(condition), lambda: self(e.args[2]))
            c, a, d = v.same_lanes(self.b, condition, a, d)
            return self.b.select(c, a, d)
        with self.b.if_else(condition) as (then, otherwise):
            with then:
                a = self(e.args[1])
                a_block = self.b.block
            with otherwise:
                d = self(e.args[2])
                d_block = self.b.block
        if v.lanes_of(a) != v.lanes_of(d):
            with self.b.goto_block(a_block):
                a = v.splat(self.b, a, v.lanes_of(d))
            with self.b.goto_block(d_block):
                d = v.splat(self.b, d, v.lanes_of(a))
        phi = self.b.phi(a.type)
        phi.add_incoming(a, a_block)
        phi.add_incoming(d, d_block)
        return phi

    def under(self, mask: ll.Value, emit: Callable[[], ll.Value]) -> ll.Value:
        """Emit with loads and stores limited to the lanes of ``mask``."""
        outer = self.mask
        self.mask = mask if outer is None else self.b.and_(outer, mask)
        result = emit()
        self.mask = outer
        return result

    # -- memory -------------------------------------------------------------------------------------------------

    def _stride(self, flat: PrimExpr) -> tuple[PrimExpr, int] | None:
        """The offset of lane 0 and the step between lanes; None when the offset is not linear in the lane."""
        assert self.lanes is not None
        form = self.analyzer.linear(flat)
        step, others = 0, dict(form.terms)
        for k, (atom, coefficient) in form.terms.items():
            if atom is self.lanes.var:
                step = coefficient
                del others[k]
            elif any(n is self.lanes.var or id(n) in self._vector_lets() for n in walk(atom)):
                return None
        form.terms = others
        return self.analyzer.build(form, "int64"), step

    def _vector_lets(self) -> set[int]:
        return {k for k, value in self.env.items() if v.lanes_of(value) > 1}

    def address(self, buffer: Buffer, offset: ll.Value) -> ll.Value:
        base = self.buffers.get(id(buffer))
        if base is None:
            raise CodegenError(f"buffer {buffer.name!r} is not allocated here")
        return self.b.gep(base, [offset], source_etype=v.storage_type(buffer.dtype))

    def emit_BufferLoad(self, e: BufferLoad) -> ll.Value:
        element, align = v.storage_type(e.dtype), dt.nbytes(e.dtype)
        flat = flat_index(e.buffer, e.indices)
        place = (flat, 0) if self.lanes is None else self._stride(flat)
        if place is not None and place[1] == 0:
            return self._as_value(self._scalar_load(e.buffer, place[0], element, align), e.dtype)
        assert self.lanes is not None
        lanes = self.lanes.count
        if place is not None and place[1] == 1:
            pointer = self.address(e.buffer, self(place[0]))
            return self._as_value(self._vector_load(pointer, ll.VectorType(element, lanes), align), e.dtype)
        return self._as_value(self._gather(self._lane_pointers(e.buffer, flat), element, lanes, align), e.dtype)

    def _scalar_load(self, buffer: Buffer, offset: PrimExpr, element: ll.Type, align: int) -> ll.Value:
        pointer = self.address(buffer, self(offset))
        if self.mask is None:
            return self.b.load(pointer, align=align, typ=element)
        lanes = v.lanes_of(self.mask)
        any_lane = v.intrinsic(self.b, f"llvm.vector.reduce.or.v{lanes}i1", [self.mask], I1)
        return self.b.load(self.b.select(any_lane, pointer, self._entry_zero(element)), align=align, typ=element)

    def _entry_zero(self, element: ll.Type) -> ll.Value:
        """A readable zero to load instead when no lane is active."""
        entry = self.b.function.entry_basic_block
        with self.b.goto_block(entry):
            if entry.instructions:
                self.b.position_before(entry.instructions[0])
            slot = v.stack_slot(self.b, element)
            self.b.store(ll.Constant(element, None), slot)
        return slot

    def _vector_load(self, pointer: ll.Value, vector: ll.VectorType, align: int) -> ll.Value:
        if self.mask is None:
            return self.b.load(pointer, align=align, typ=vector)
        name = f"llvm.masked.load.{v.type_suffix(vector)}.p0"
        args = [pointer, ll.Constant(I32, align), self.mask, ll.Constant(vector, None)]
        return v.intrinsic(self.b, name, args, vector)

    def _lane_pointers(self, buffer: Buffer, flat: PrimExpr) -> ll.Value:
        assert self.lanes is not None
        offsets = v.splat(self.b, self(flat), self.lanes.count)
        size = v.constant(I64, dt.nbytes(buffer.dtype), self.lanes.count)
        base = self.b.ptrtoint(self.buffers[id(buffer)], I64)
        addresses = self.b.add(v.splat(self.b, base, self.lanes.count), self.b.mul(offsets, size))
        return self.b.inttoptr(addresses, ll.VectorType(PTR, self.lanes.count))

    def _full_mask(self, lanes: int) -> ll.Value:
        return v.constant(I1, 1, lanes) if self.mask is None else self.mask

    def _gather(self, pointers: ll.Value, element: ll.Type, lanes: int, align: int) -> ll.Value:
        vector = ll.VectorType(element, lanes)
        name = f"llvm.masked.gather.{v.type_suffix(vector)}.v{lanes}p0"
        args = [pointers, ll.Constant(I32, align), self._full_mask(lanes), ll.Constant(vector, None)]
        return v.intrinsic(self.b, name, args, vector)

    def store(self, buffer: Buffer, indices: tuple[PrimExpr, ...], value: ll.Value) -> None:
        """Store a value (a vector inside a vectorized loop) at an element."""
        value = self._as_stored(value, buffer.dtype)
        align = dt.nbytes(buffer.dtype)
        flat = flat_index(buffer, indices)
        if self.lanes is None:
            self.b.store(value, self.address(buffer, self(flat)), align=align)
            return
        lanes = self.lanes.count
        place = self._stride(flat)
        value = v.splat(self.b, value, lanes)
        if place is not None and (place[1] == 1 or lanes == 1):
            self._vector_store(value, self.address(buffer, self(place[0])), align)
        else:
            name = f"llvm.masked.scatter.{v.type_suffix(value.type)}.v{lanes}p0"
            pointers = self._lane_pointers(buffer, flat)
            args = [value, pointers, ll.Constant(I32, align), self._full_mask(lanes)]
            v.intrinsic(self.b, name, args, v.VOID)

    def _vector_store(self, value: ll.Value, pointer: ll.Value, align: int) -> None:
        if self.mask is None:
            self.b.store(value, pointer, align=align)
            return
        name = f"llvm.masked.store.{v.type_suffix(value.type)}.p0"
        v.intrinsic(self.b, name, [value, pointer, ll.Constant(I32, align), self.mask], v.VOID)

    def _as_value(self, loaded: ll.Value, dtype: str) -> ll.Value:
        return self.b.trunc(loaded, v.vector_of(I1, v.lanes_of(loaded))) if dtype == "bool" else loaded

    def _as_stored(self, value: ll.Value, dtype: str) -> ll.Value:
        return self.b.zext(value, v.vector_of(v.I8, v.lanes_of(value))) if dtype == "bool" else value


def _power_of_two(value: ll.Value) -> int | None:
    """The exponent when ``value`` is a constant power of two in every lane."""
    if not isinstance(value, ll.Constant):
        return None
    number = value.constant
    if isinstance(number, list | tuple):
        members = {m.constant if isinstance(m, ll.Constant) else m for m in number}
        number = members.pop() if len(members) == 1 else None
    if isinstance(number, int) and number > 0 and number & (number - 1) == 0:
        return number.bit_length() - 1
    return None
