"""Barriers between dependent tensor functions of a planned graph function."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

from ....ir.expr import as_expr
from ....ir.module import GlobalVar, IRModule
from ....ir.simplify import key
from ....passes.base import Pass
from ....relax.nodes import Binding, BindingBlock, Call, Expr, ExternFunc, Function, Op, TupleGetItem, Var
from ....tir.intrinsics import written_buffers
from ....tir.nodes import PrimFunc

Region = tuple[Hashable, int, int]  # base, and the byte range [begin, end) in it


@dataclass(frozen=True)
class Access:
    """Memory that a call touches: a whole parameter or a range of the workspace."""

    region: Region
    writes: bool

    def conflicts(self, other: Access) -> bool:
        (base, begin, end), (other_base, other_begin, other_end) = self.region, other.region
        overlap = base == other_base and begin < other_end and other_begin < end
        return overlap and (self.writes or other.writes)


@dataclass(frozen=True)
class PlaceBarriers(Pass):
    """Insert ``R.builtin.barrier()`` before a call that depends on one made since the last barrier.

    Needs: planned functions. A call depends on another when one of them writes memory that the other touches; a call of
    a registered function depends on all before it, and is itself a barrier.
    """

    name = "place-barriers"

    def run(self, mod: IRModule) -> IRModule:
        written = {name: _written(f) for name, f in mod.of_type(PrimFunc).items()}
        return mod.updated({name: _place(f, written) for name, f in mod.of_type(Function).items()})


def _written(func: PrimFunc) -> list[bool]:
    stored = written_buffers(func.body)
    return [id(b) in stored for b in func.buffers]


def _place(func: Function, written: dict[str, list[bool]]) -> Function:
    regions: dict[int, Region] = {}
    pending: list[Access] = []
    result: list[Binding] = []
    for binding in func.bindings:
        call = binding.value
        if isinstance(call, Call) and isinstance(call.target, Op):
            regions |= _named_region(binding.var, call, regions)
        if isinstance(call, Call) and isinstance(call.target, GlobalVar | ExternFunc):
            is_packed = isinstance(call.target, ExternFunc)
            accesses = [] if is_packed else _accesses(call, written[call.target.name], regions)
            if is_packed or any(a.conflicts(p) for a in accesses for p in pending):
                if pending:
                    result.append(Binding(Var("_", None), Call(Op("builtin.barrier"), ())))
                pending = []
            pending += accesses
        result.append(binding)
    return replace(func, blocks=(BindingBlock(tuple(result)),))


def _named_region(var: Var, call: Call, regions: dict[int, Region]) -> dict[int, Region]:
    """The region of a planned variable: a range of the workspace, or the region that it is a view of."""
    if call.target.name == "reshape":
        return {id(var): _region(call.args[0], regions)}
    if call.target.name != "builtin.alloc_tensor":
        return {}
    begin, size = call.attrs["offset"], call.attrs["nbytes"]
    if isinstance(size, int):
        return {id(var): ("bounded", begin, begin + size)}
    return {id(var): (("block", key(as_expr(begin))), 0, 1)}  # blocks at different symbolic offsets are disjoint


def _accesses(call: Call, written: list[bool], regions: dict[int, Region]) -> list[Access]:
    pairs = zip(call.args, written, strict=False)
    return [Access(_region(arg, regions), writes) for arg, writes in pairs if isinstance(arg, Expr)]


def _region(arg: Expr, regions: dict[int, Region]) -> Region:
    if isinstance(arg, TupleGetItem):
        return ("field", id(arg.tuple_value), arg.index), 0, 1
    return regions.get(id(arg), (("parameter", id(arg)), 0, 1))
