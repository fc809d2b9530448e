"""Graph operators become calls of tensor functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..ir.expr import PrimExpr
from ..ir.module import GlobalVar, IRModule
from ..ir.simplify import Analyzer
from ..relax.builder import BlockBuilder, call_tir
from ..relax.nodes import Binding, BindingBlock, Call, Expr, Function, Op, TupleGetItem, Var
from ..relax.ops import OPERATORS, VIEW_OPERATORS
from ..relax.ops.registry import Operator
from ..relax.tensor_call import TensorCall, lower_te, signature, tensor_inputs
from .base import Pass


@dataclass(frozen=True)
class Legalize(Pass):
    """Replace every call of a registered operator by ``call_tir`` of the tensor function that its ``te`` gives.

    Needs: operator arguments are variables, constants, shapes or tuples of these. Gives: no operator calls but views,
    which move no element; equal tensor functions are shared. Symbolic sizes that an operator takes for equal go to the
    attribute ``size_checks``: (what, size, size).
    """

    name = "legalize"

    def run(self, mod: IRModule) -> IRModule:
        builder = BlockBuilder(mod)
        functions = {name: _Legalizer(builder).function(f) for name, f in mod.of_type(Function).items()}
        return builder.get().updated(functions)


@dataclass
class _Legalizer:
    """One graph function. Calls with equal arguments (their sizes are this function's variables) are lowered once."""

    builder: BlockBuilder
    lowered: dict[Any, tuple[GlobalVar, TensorCall]] = field(default_factory=dict)
    checks: list[tuple[str, PrimExpr, PrimExpr]] = field(default_factory=list)

    def function(self, func: Function) -> Function:
        blocks = tuple(self.block(b) for b in func.blocks)
        checks = (*func.attrs.get("size_checks", ()), *self.checks)
        attrs = {**func.attrs, "size_checks": checks} if checks else func.attrs
        return Function(func.params, blocks, func.ret, func.ret_info, attrs, func.is_pure)

    def block(self, block: BindingBlock) -> BindingBlock:
        new = [made for old in block.bindings for made in self.binding(old, block.dataflow)]
        return BindingBlock(tuple(new), block.dataflow)

    def binding(self, binding: Binding, dataflow: bool) -> list[Binding]:
        value = binding.value
        if not (isinstance(value, Call) and isinstance(value.target, Op) and value.target.name in OPERATORS):
            return [binding]
        if value.target.name in VIEW_OPERATORS:
            return [binding]
        func, lowered = self.lower(OPERATORS[value.target.name], value)
        items, inputs = _bound(tensor_inputs(value.args), binding.var.name, dataflow)
        call = call_tir(func, inputs, value.struct_info or lowered.out_info, lowered.scalars)
        return [*items, Binding(binding.var, call, binding.matched)]

    def lower(self, operator: Operator, call: Call) -> tuple[GlobalVar, TensorCall]:
        identity = (operator.name, signature(call.args), tuple(call.attrs.items()))
        if identity not in self.lowered:
            lowered = lower_te(operator.te, operator.arg_names, call.args, call.attrs)
            func = self.builder.add_func(lowered.func, operator.name.split(".")[-1])
            self.lowered[identity] = (func, lowered)
            self._note_assumptions(operator.name, lowered)
        return self.lowered[identity]

    def _note_assumptions(self, name: str, lowered: TensorCall) -> None:
        analyzer = Analyzer()
        for found, expected in lowered.assumptions:
            if not analyzer.prove_equal(found, expected):
                self.checks.append((f"an operand of {name}", found, expected))


def _bound(inputs: list[Expr], name: str, dataflow: bool) -> tuple[list[Binding], list[Expr]]:
    """Bindings for the inputs that are fields of a tuple variable, and the inputs with these variables."""
    bindings, leaves = [], []
    for i, value in enumerate(inputs):
        if isinstance(value, TupleGetItem):
            bindings.append(Binding(Var(f"{name}_in{i}", value.struct_info, dataflow), value))
            value = bindings[-1].var
        leaves.append(value)
    return bindings, leaves
