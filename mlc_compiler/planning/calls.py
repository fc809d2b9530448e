"""Calls of a planned graph function: on storages during planning, on bound variables in the result."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..ir.expr import PrimExpr
from ..ir.module import GlobalVar
from ..relax.info import shape_expr
from ..relax.nodes import Binding, Call, Expr, ExternFunc, Op, PrimValue, TensorStructInfo, Var
from .workspace import Storage

Operand = Storage | Expr | PrimExpr


@dataclass(frozen=True)
class Step:
    """A call of a tensor function or registered function; args: storages, then numbers."""

    func: GlobalVar | ExternFunc
    args: tuple[Operand, ...]


class View(Storage):
    """A view of a storage with another shape."""

    def __init__(self, base: Storage, info: TensorStructInfo):
        super().__init__("view", info)
        self.base = base


def base_of(storage: Storage) -> Storage:
    """The storage to which a view refers; any other storage itself."""
    return storage.base if isinstance(storage, View) else storage


@dataclass
class CallWriter:
    """Writes the bindings of the planned function; a value is allocated at its first use."""

    bindings: list[Binding] = field(default_factory=list)
    names: dict[int, Expr] = field(default_factory=dict)

    def write(self, step: Step) -> None:
        """Append a call, preceded by the allocations and views that it needs."""
        shaped = isinstance(step.func, ExternFunc)
        args = tuple(self._argument(a, shaped) for a in step.args)
        self.bindings.append(Binding(Var("_", None), Call(step.func, args)))

    def _argument(self, arg: Operand, shaped: bool) -> Expr:
        """Convert an operand of a call; ``shaped``: the callee receives shapes, so views are passed as views."""
        if isinstance(arg, PrimExpr):
            return PrimValue(arg)
        if not isinstance(arg, Storage):
            return arg
        storage = base_of(arg)
        if id(storage) not in self.names:
            self.names[id(storage)] = storage.expr or self._allocation(storage)
        base = self.names[id(storage)]
        return self._view(base, arg.info) if shaped and arg is not storage else base

    def _allocation(self, storage: Storage) -> Var:
        info = storage.info
        if storage.kind == "zeroed":
            attrs = {"dtype": info.dtype, "offset": storage.offset}
            zeroed = Call(Op("builtin.zeroed_tensor"), (shape_expr(info.shape or ()),), attrs, None, info)
            return self._bind("zeroed", zeroed, info)
        attrs = {"dtype": info.dtype, "offset": storage.offset, "nbytes": storage.nbytes}
        call = Call(Op("builtin.alloc_tensor"), (shape_expr(info.shape or ()),), attrs, None, info)
        return self._bind("ws", call, info)

    def _view(self, base: Expr, info: TensorStructInfo) -> Var:
        call = Call(Op("reshape"), (base, shape_expr(info.shape or ())), {}, None, info)
        return self._bind("view", call, info)

    def _bind(self, name: str, call: Call, info: TensorStructInfo) -> Var:
        var = Var(f"{name}{len(self.bindings)}", info)
        self.bindings.append(Binding(var, call))
        return var
