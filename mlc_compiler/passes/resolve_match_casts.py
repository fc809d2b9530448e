"""Resolve ``R.match_cast``: substitute its symbols by the matched sizes, and check other sizes at function entry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from mlc_errors import MLCError

from ..ir.expr import PrimExpr
from ..ir.expr import Var as SizeVar
from ..ir.module import IRModule
from ..ir.simplify import Analyzer
from ..ir.visitor import free_vars
from ..relax import nodes as rx
from ..relax.info import show_shape
from ..relax.instantiate import Copy
from .base import Pass


class MatchError(MLCError):
    """A ``match_cast`` to a kind of value, dtype or number of axes that its operand does not have."""


@dataclass(frozen=True)
class ResolveMatchCasts(Pass):
    """Replace the symbols that ``match_cast`` defines by the matched sizes; other sizes are checked at function entry.

    The function's attribute ``size_checks`` lists the checks: (description, size found, size expected).
    """

    name = "resolve-match-casts"

    def run(self, mod: IRModule) -> IRModule:
        graph = mod.of_type(rx.Function)
        matching = {n: f for n, f in graph.items() if any(b.matched for b in f.bindings)}
        return mod.updated({name: _Resolver(name, f).run() for name, f in matching.items()})


@dataclass
class _Resolver:
    name: str
    func: rx.Function
    checks: list[tuple[str, PrimExpr, PrimExpr]] = field(default_factory=list)

    def run(self) -> rx.Function:
        self.copy = Copy({}, {}, None)
        self.known = {id(v) for v in free_vars([p.struct_info for p in self.func.params])}
        blocks = tuple(replace(b, bindings=tuple(map(self._binding, b.bindings))) for b in self.func.blocks)
        resolved = replace(
            self.func, blocks=blocks, ret=self.copy(self.func.ret), ret_info=self.copy(self.func.ret_info)
        )
        checks = (*resolved.attrs.get("size_checks", ()), *self.checks)
        return resolved.with_attr("size_checks", checks) if checks else resolved

    def _binding(self, binding: rx.Binding) -> rx.Binding:
        if binding.matched:
            value = self.copy(binding.value)
            self._match(binding.var.name, binding.var.struct_info, value.struct_info)
        return replace(self.copy.binding(binding), matched=False)

    def _match(self, what: str, expected: rx.StructInfo | None, found: rx.StructInfo | None) -> None:
        if isinstance(expected, rx.TupleStructInfo) and isinstance(found, rx.TupleStructInfo):
            for i, (e, f) in enumerate(zip(expected.fields, found.fields, strict=True)):
                self._match(f"{what}[{i}]", e, f)
        elif isinstance(expected, rx.TensorStructInfo) and isinstance(found, rx.TensorStructInfo):
            self._match_tensor(what, expected, found)
        elif isinstance(expected, rx.ShapeStructInfo) and isinstance(found, rx.ShapeStructInfo):
            self._match_sizes(what, expected.values, found.values)
        else:
            raise MatchError(f"{self.name}: {what} is matched with another kind of value")

    def _match_tensor(self, what: str, expected: rx.TensorStructInfo, found: rx.TensorStructInfo) -> None:
        if expected.dtype != found.dtype:
            raise MatchError(f"{self.name}: {what} is {found.dtype}; expected {expected.dtype}")
        self._match_sizes(what, expected.shape, found.shape)

    def _match_sizes(self, what: str, expected: Sequence[PrimExpr] | None, found: Sequence[PrimExpr] | None) -> None:
        if expected is None:
            return
        if found is None or len(expected) != len(found):
            got = "unknown" if found is None else show_shape(found)
            raise MatchError(f"{self.name}: {what} has the shape {got}; expected {show_shape(expected)}")
        for axis, (size, actual) in enumerate(zip(expected, found, strict=True)):
            if isinstance(size, SizeVar) and id(size) not in self.known:
                self.known.add(id(size))
                self.copy.sizes[id(size)] = actual
            else:
                self._check(f"{what} on axis {axis}", actual, self.copy(size))

    def _check(self, what: str, found: PrimExpr, expected: PrimExpr) -> None:
        if not Analyzer().prove_equal(found, expected):
            self.checks.append((what, found, expected))
