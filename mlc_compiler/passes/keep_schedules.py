"""Mark tensor functions that are already scheduled."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.expr import IntImm, Var
from ..ir.module import IRModule
from ..ir.visitor import walk
from ..tir.nodes import SERIAL, BlockRealize, For, PrimFunc, SeqStmt, is_root
from ..tir.regions import accesses
from .base import Pass


@dataclass(frozen=True)
class KeepSchedules(Pass):
    """Mark scheduled tensor functions with ``tir.is_scheduled``, which excludes them from fusion and schedule rules.

    A function counts as unscheduled when it is a sequence of blocks without instructions, each in its own nest of
    serial loops with one loop per block variable, and no block writes a buffer that an earlier block reads or writes.
    """

    name = "keep-schedules"

    def run(self, mod: IRModule) -> IRModule:
        found = {name: f for name, f in mod.of_type(PrimFunc).items() if is_scheduled(f)}
        return mod.updated({name: f.with_attr("tir.is_scheduled", True) for name, f in found.items()})


def is_scheduled(func: PrimFunc) -> bool:
    """Whether a function differs from the unscheduled form that ``KeepSchedules`` describes."""
    if not is_root(func.body):
        return True
    return any(_is_scheduling(node) for node in walk(func.body)) or _overwrites(func)


def _overwrites(func: PrimFunc) -> bool:
    """Whether a block writes a buffer that an earlier block reads or writes."""
    touched: set[int] = set()
    for node in walk(func.body):
        if isinstance(node, BlockRealize) and node.block.name != "root":
            loads, stores = accesses((node.block.init, node.block.body))
            if touched & {id(s.buffer) for s in stores}:
                return True
            touched |= {id(load.buffer) for load in loads} | {id(store.buffer) for store in stores}
    return False


def _is_scheduling(node: object) -> bool:
    if isinstance(node, For):
        return node.kind != SERIAL or bool(node.annotations) or isinstance(node.body, SeqStmt)
    if not isinstance(node, BlockRealize):
        return False
    bound = [v for v in node.iter_values if not isinstance(v, IntImm)]
    plain = all(isinstance(v, Var) for v in bound) and len({id(v) for v in bound}) == len(bound)
    return not plain or not isinstance(node.predicate, IntImm) or "tensorized" in node.block.annotations
