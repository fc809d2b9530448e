"""Translation of scalar expressions to Python source that calls :mod:`scalars` and :mod:`intrinsics`."""

from __future__ import annotations

from typing import Any

from ..ir import dtype as dt
from ..ir.expr import BinaryOp, Call, Cast, FloatImm, IntImm, Let, Not, PrimExpr, Select, StringImm, Var
from ..script.names import identifier
from ..tir.nodes import Buffer, BufferLoad
from . import scalars
from .errors import InterpreterError
from .intrinsics import function_of

_RING = {"+": 1, "-": 1, "*": 2}
_ATOM = 3
_INT_CALLS = {"/": scalars.truncating_division, "<<": scalars.shift_left, ">>": scalars.shift_right}
_SMALL = 1 << 31


class ExprTranslator:
    """Translates expressions to Python source; the objects that the source refers to are collected in ``globals``."""

    def __init__(self) -> None:
        self.globals: dict[str, Any] = {}
        self.names: dict[int, str] = {}
        self.bounded: set[int] = set()
        """The ``id`` of each variable with small values: loop variables, block variables, sizes."""
        self._keep_alive: list[Any] = []
        self._constants: dict[Any, str] = {}

    def name(self, obj: Var | Buffer, bounded: bool = False) -> str:
        """Assign a Python name to a variable or buffer. ``bounded``: whether its value is small."""
        self._keep_alive.append(obj)
        if bounded:
            self.bounded.add(id(obj))
        self.names[id(obj)] = text = f"{identifier(obj.name)}_{len(self._keep_alive)}"
        return text

    def use(self, key: Any, value: Any, hint: str) -> str:
        """The global name of a Python object; ``key`` identifies it."""
        if key not in self._constants:
            self._constants[key] = text = f"{hint}_{len(self.globals)}"
            self.globals[text] = value
        return self._constants[key]

    # -- values

    def value(self, e: PrimExpr) -> str:
        """Source of a value in the range of its dtype; needs no parentheses as an operand, except of ``**``."""
        if isinstance(e, BinaryOp):
            return self._binary(e)
        method = getattr(self, f"_{type(e).__name__}", None)
        if method is None:
            return self._Var(e) if isinstance(e, Var) else self._unknown(e)
        return method(e)

    def index(self, e: PrimExpr) -> str:
        """Source of an index. It is not wrapped around, because buffer accesses check its bounds."""
        return self._ring(e)[0] if dt.is_int(e.dtype) else self.value(e)

    def _unknown(self, e: PrimExpr) -> str:
        raise InterpreterError(f"an expression of type {type(e).__name__} has no meaning here")

    def _Var(self, e: Var) -> str:
        if id(e) not in self.names:
            raise InterpreterError(f"variable {e.name!r} is used where nothing defines it")
        return self.names[id(e)]

    def _IntImm(self, e: IntImm) -> str:
        return str(bool(e.value)) if e.dtype == "bool" else f"({e.value})"

    def _FloatImm(self, e: FloatImm) -> str:
        return self.use((e.dtype, repr(e.value)), scalars.float_type(e.dtype)(e.value), "constant")

    def _StringImm(self, e: StringImm) -> str:
        return repr(e.value)

    def _Cast(self, e: Cast) -> str:
        convert = scalars.converter(e.value.dtype, e.dtype)
        return f"{self.use((e.value.dtype, e.dtype), convert, f'to_{e.dtype}')}({self.value(e.value)})"

    def _Not(self, e: Not) -> str:
        return f"(not {self.value(e.value)})"

    def _Select(self, e: Select) -> str:
        parts = ", ".join(map(self.value, (e.condition, e.true_value, e.false_value)))
        return f"{self.use('select', scalars.select, 'select')}({parts})"

    def _Let(self, e: Let) -> str:
        value = self.value(e.value)
        return f"(({self.name(e.var)} := {value}), {self.value(e.body)})[1]"

    def _BufferLoad(self, e: BufferLoad) -> str:
        if id(e.buffer) not in self.names:
            raise InterpreterError(f"buffer {e.buffer.name!r} is read where nothing defines it")
        return f"load_{self.names[id(e.buffer)]}({', '.join(map(self.index, e.indices))})"

    def _Call(self, e: Call) -> str:
        args = [self.value(a) for a in e.args]
        if e.op == "if_then_else":
            return f"({args[1]} if {args[0]} else {args[2]})"
        key = (e.op, e.dtype, tuple(a.dtype for a in e.args))
        return f"{self.use(key, function_of(e), identifier(e.op))}({', '.join(args)})"

    # -- operators

    def _binary(self, e: BinaryOp) -> str:
        dtype = e.a.dtype
        if e.op in ("min", "max"):
            function = scalars.minimum if e.op == "min" else scalars.maximum
            return f"{self.use(e.op, function, e.op)}({self.value(e.a)}, {self.value(e.b)})"
        if e.op in ("and", "or"):
            return f"({self.value(e.a)} {'&' if e.op == 'and' else '|'} {self.value(e.b)})"
        if not dt.is_int(dtype):
            return self._float_chain(e)
        if e.op in _RING:
            text = self._ring(e)[0]
            return f"({text})" if self._is_small(e) else self._wrapped(text, dtype)
        if e.op in _INT_CALLS:
            call = self.use(e.op, _INT_CALLS[e.op], "int_op")
            return self._wrapped(f"{call}({self.value(e.a)}, {self.value(e.b)})", dtype)
        if e.op == "//" and not isinstance(e.b, IntImm):
            return self._wrapped(f"({self.value(e.a)} // {self.value(e.b)})", dtype)
        return f"({self.value(e.a)} {e.op} {self.value(e.b)})"

    def _float_chain(self, e: BinaryOp) -> str:
        """Source ``(a op b op c)``: a chain of one operator shares parentheses, because Python limits their nesting."""
        terms = [self.value(e.b)]
        left = e.a
        while isinstance(left, BinaryOp) and left.op == e.op and e.op in "+*":
            terms.append(self.value(left.b))
            left = left.a
        terms.append(self.value(left))
        return f"({f' {e.op} '.join(reversed(terms))})"

    def _wrapped(self, text: str, dtype: str) -> str:
        return f"{self.use(('wrap', dtype), scalars.wrapper(dtype), f'wrap_{dtype}')}({text})"

    def _ring(self, e: PrimExpr) -> tuple[str, int]:
        """Unwrapped source of a sum of products, and its precedence; wrapping the result once is equivalent."""
        if not isinstance(e, BinaryOp) or e.op not in _RING:
            return self.value(e), _ATOM
        own = _RING[e.op]
        (a, a_level), (b, b_level) = self._ring(e.a), self._ring(e.b)
        a = a if a_level >= own else f"({a})"
        b = b if b_level > own else f"({b})"
        return f"{a} {e.op} {b}", own

    def _is_small(self, e: PrimExpr) -> bool:
        """Whether an expression is index arithmetic on small values, which does not overflow int64."""
        if isinstance(e, BinaryOp):
            return self._is_small(e.a) and self._is_small(e.b)
        small = isinstance(e, IntImm) and abs(e.value) < _SMALL
        return e.dtype == "int64" and (small or id(e) in self.bounded)
