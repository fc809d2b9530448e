"""Lower graph operators to calls of tensor functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..ir.expr import PrimExpr
from ..ir.expr import Var as Symbol
from ..ir.module import GlobalVar, IRModule
from ..ir.visitor import substitute
from ..relax.builder import BlockBuilder, call_tir, call_tir_inplace
from ..relax.nodes import Binding, BindingBlock, Call, Expr, Function, Op, PrimValue, TupleGetItem, Var
from ..relax.ops import OPERATORS, VIEW_OPERATORS
from ..relax.ops.registry import Operator
from ..relax.tensor_call import NoKernel, TensorCall, TensorExpression, lower_te, signature, size_checks, tensor_inputs
from .base import Pass


@dataclass(frozen=True)
class Legalize(Pass):
    """Lower every call of a registered operator to ``call_tir`` of its tensor expression.

    Needs: operator arguments are variables, constants, shapes or tuples of these. Keeps: views such as ``reshape``,
    which move no element. Equal tensor functions are shared. Symbolic sizes that an operator assumes to be equal are
    added to the attribute ``size_checks``: (what, size found, size expected).

    kernels: hand-scheduled tensor expressions by operator name, with the operator's signature, used instead of the
    operator's own. Where one raises NoKernel, the operator's own expression is used.
    """

    name = "legalize"
    kernels: Mapping[str, TensorExpression] = field(default_factory=dict)

    def run(self, mod: IRModule) -> IRModule:
        builder = BlockBuilder(mod)
        functions = {name: _Legalizer(builder, self.kernels).function(f) for name, f in mod.of_type(Function).items()}
        return builder.get().updated(functions)


@dataclass
class _Legalizer:
    """Legalizes one graph function; calls with equal arguments (the same size variables) are lowered once."""

    builder: BlockBuilder
    kernels: Mapping[str, TensorExpression]
    lowered: dict[Any, tuple[GlobalVar, TensorCall]] = field(default_factory=dict)
    variables: dict[str, Symbol] = field(default_factory=dict)
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
        operator = OPERATORS[value.target.name]
        args, scalars = self._with_variables(operator, value.args)
        func, lowered = self.lower(operator, args, value.attrs)
        given = substitute(lowered.scalars, scalars)
        items, inputs = _bound(tensor_inputs(value.args), binding.var.name, dataflow)
        info = value.struct_info or lowered.out_info
        if lowered.inplace:
            call = call_tir_inplace(func, inputs, lowered.inplace, info, given)
        else:
            call = call_tir(func, inputs, info, given)
        return [*items, Binding(binding.var, call, binding.matched)]

    def lower(self, operator: Operator, args: Sequence[Expr], attrs: Mapping[str, Any]) -> tuple[GlobalVar, TensorCall]:
        identity = (operator.name, signature(args), tuple(attrs.items()))
        if identity not in self.lowered:
            lowered = self.kernel(operator, args, attrs) or lower_te(operator.te, operator.arg_names, args, attrs)
            func = self.builder.add_func(lowered.func, operator.name.split(".")[-1])
            self.lowered[identity] = (func, lowered)
            self.checks += size_checks(f"an operand of {operator.name}", lowered)
        return self.lowered[identity]

    def kernel(self, operator: Operator, args: Sequence[Expr], attrs: Mapping[str, Any]) -> TensorCall | None:
        if operator.name not in self.kernels:
            return None
        try:
            lowered = lower_te(self.kernels[operator.name], operator.arg_names, args, attrs)
        except NoKernel:
            return None
        return replace(lowered, func=lowered.func.with_attr("tir.is_scheduled", True))

    def _with_variables(
        self, operator: Operator, args: Sequence[Expr]
    ) -> tuple[tuple[Expr, ...], dict[Symbol, PrimExpr]]:
        """The arguments, with run-time scalars replaced by variables, and the values of these variables."""
        result, values = list(args), dict[Symbol, PrimExpr]()
        for name in operator.scalars:
            i = operator.arg_names.index(name)
            given = args[i]
            assert isinstance(given, PrimValue)
            variable = self.variables.setdefault(name, Symbol(name))
            values[variable] = given.value
            result[i] = PrimValue(variable)
        return tuple(result), values


def _bound(inputs: list[Expr], name: str, dataflow: bool) -> tuple[list[Binding], list[Expr]]:
    """Bind the inputs that are fields of a tuple variable; return the bindings, and the inputs as variables."""
    bindings, leaves = [], []
    for i, value in enumerate(inputs):
        if isinstance(value, TupleGetItem):
            bindings.append(Binding(Var(f"{name}_in{i}", value.struct_info, dataflow), value))
            value = bindings[-1].var
        leaves.append(value)
    return bindings, leaves
