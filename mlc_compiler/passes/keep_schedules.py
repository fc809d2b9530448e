"""Tensor functions whose loops somebody has arranged keep their loops."""

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
    """Mark tensor functions that are scheduled already with ``tir.is_scheduled``: no rule and no fusion touches these.

    A function counts as not scheduled when it reads like a definition: blocks one after the other, each in serial loops
    of its own with one loop for each of its variables, and none writes what a block before it has read or written.
    """

    name = "keep-schedules"

    def run(self, mod: IRModule) -> IRModule:
        found = {name: f for name, f in mod.of_type(PrimFunc).items() if is_arranged(f)}
        return mod.updated({name: f.with_attr("tir.is_scheduled", True) for name, f in found.items()})


def is_arranged(func: PrimFunc) -> bool:
    """Whether the loops of a function are other than a plain definition has."""
    if not is_root(func.body):
        return True
    return any(_is_arrangement(node) for node in walk(func.body)) or _overwrites(func)


def _overwrites(func: PrimFunc) -> bool:
    """Whether the order of the blocks matters beyond that results are computed before they are read."""
    touched: set[int] = set()
    for node in walk(func.body):
        if isinstance(node, BlockRealize) and node.block.name != "root":
            loads, stores = accesses((node.block.init, node.block.body))
            if touched & {id(s.buffer) for s in stores}:
                return True
            touched |= {id(load.buffer) for load in loads} | {id(store.buffer) for store in stores}
    return False


def _is_arrangement(node: object) -> bool:
    if isinstance(node, For):
        return node.kind != SERIAL or bool(node.annotations) or isinstance(node.body, SeqStmt)
    if not isinstance(node, BlockRealize):
        return False
    bound = [v for v in node.iter_values if not isinstance(v, IntImm)]
    plain = all(isinstance(v, Var) for v in bound) and len({id(v) for v in bound}) == len(bound)
    return not plain or not isinstance(node.predicate, IntImm)
