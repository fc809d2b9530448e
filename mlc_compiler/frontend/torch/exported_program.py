"""Import of an ExportedProgram (``torch.export``) as a module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind

from ...api import bind_params
from ...ir.expr import PrimExpr
from ...relax.builder import BlockBuilder
from ...relax.info import make_tuple, tensor_info
from ...relax.nodes import Expr, PrimStructInfo
from ...relax.nodes import Var as GraphVar
from ..imported import Imported
from ..values import ImportModelError, Size
from .aten import row_of
from .graph import Translation, constant_of, dtype_name, needed, operator_name, require_rows
from .sizes import Sizes

MAIN = "main"


def from_exported_program(program: ExportedProgram, keep_params: bool = True) -> Imported:
    """Import a program as the function ``main``, whose first parameters are the inputs.

        imported = from_exported_program(torch.export.export(model.eval(), (x,)))
        y = build(imported.mod)["main"](x, *imported.params.values())
        y = imported.jit()["main"](x)

    Dynamic sizes become symbolic sizes with the program's bounds; its assertions are dropped. Operators without a
    row of their own are decomposed by PyTorch. Nested inputs and outputs are flattened: one output is a tensor, several
    are a tuple in the program's order. keep_params: used parameters and buffers become arguments after the
    inputs, named by their path in the model (``encoder_layer_0_weight``); else they are constants, like the tensors
    that the program holds. Raises ImportModelError for unsupported programs, and lists all unsupported operators.
    """
    imported = _Importer(decomposed(program)).run()
    if keep_params:
        return imported
    return Imported(bind_params(imported.mod, MAIN, imported.params), {})


def decomposed(program: ExportedProgram) -> ExportedProgram:
    """The program in functional form, with operators that have no row decomposed by PyTorch."""
    table = torch.export.default_decompositions()
    for op in [op for op in table if row_of(str(op)) is not None]:
        table.pop(op)
    return program.run_decompositions(table)


def _row(node: fx.Node) -> Any:
    return row_of(operator_name(node))


class _Importer:
    """Imports a program whose graph is functional (no in-place writes)."""

    def __init__(self, program: ExportedProgram):
        self.program = program
        self.nodes = needed(program.graph)
        self.builder = BlockBuilder()
        self.sizes = Sizes(program.range_constraints)
        self.inputs: list[GraphVar] = []
        self.params: dict[str, torch.Tensor] = {}
        self.weights: list[GraphVar] = []
        self.values: dict[fx.Node, Any] = {}

    def run(self) -> Imported:
        require_rows(self.nodes, _row)
        self._require_no_mutation()
        self._require_contiguous()
        used = set(self.nodes)
        placeholders = (node for node in self.program.graph.nodes if node.op == "placeholder")
        for node, spec in zip(placeholders, self.program.graph_signature.input_specs, strict=True):
            if node in used or spec.kind is InputKind.USER_INPUT:
                self.values[node] = self._input(node, spec)
        attrs: dict[str, Any] = {"num_input": len(self.inputs), **self.sizes.bounds()}
        with self.builder.function(MAIN, [*self.inputs, *self.weights], attrs):
            with self.builder.dataflow():
                result = self.builder.emit_output(self._body())
            self.builder.emit_func_output(result)
        return Imported(self.builder.get(), self.params)

    def _require_no_mutation(self) -> None:
        for spec in self.program.graph_signature.output_specs:
            if spec.kind is not OutputKind.USER_OUTPUT:
                what = spec.kind.name.lower().replace("_", " ")
                hint = "export the model in evaluation mode, with changed state as an output"
                raise ImportModelError(f"the program writes to {spec.target} ({what})", hint=hint)

    def _require_contiguous(self) -> None:
        """Refuse strides of tensors whose elements PyTorch stores in another order than this compiler."""
        for node in self.nodes:
            if node.op == "call_function" and operator_name(node) == "aten.as_strided.default":
                stored = node.all_input_nodes[0].meta["val"]
                if not stored.is_contiguous() or stored.storage_offset():
                    raise ImportModelError(f"{node.name}: as_strided of a tensor that is not contiguous")

    def _input(self, node: fx.Node, spec: InputSpec) -> Any:
        value = node.meta.get("val")
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            return self._weight(str(spec.target))
        if spec.kind is InputKind.CONSTANT_TENSOR:
            return constant_of(self.program.constants[str(spec.target)])
        if spec.kind is InputKind.USER_INPUT and isinstance(value, torch.Tensor):
            return self._argument(node.name, value)
        if spec.kind is InputKind.USER_INPUT and isinstance(value, torch.SymInt):
            return self._size_argument(node.name, value)
        if spec.kind is InputKind.USER_INPUT:
            return getattr(spec.arg, "value", value)
        raise ImportModelError(f"the input {node.name} is a {spec.kind.name.lower()}; expected tensors and sizes")

    def _argument(self, name: str, value: torch.Tensor) -> GraphVar:
        shape = [self.sizes.expression(s) for s in value.shape]
        self.inputs.append(GraphVar(name, tensor_info(shape, dtype_name(value.dtype))))
        return self.inputs[-1]

    def _size_argument(self, name: str, value: torch.SymInt) -> Size:
        size = self.sizes.expression(value)
        self.inputs.append(GraphVar(name, PrimStructInfo("int64", size if isinstance(size, PrimExpr) else None)))
        return size

    def _weight(self, target: str) -> GraphVar:
        stored: Mapping[str, Any] = self.program.state_dict
        tensor = (stored if target in stored else self.program.constants)[target].detach().contiguous()
        name = target.replace(".", "_")
        while name in self.params:
            name += "_"
        self.params[name] = tensor
        self.weights.append(GraphVar(name, tensor_info(tuple(tensor.shape), dtype_name(tensor.dtype))))
        return self.weights[-1]

    def _body(self) -> Expr:
        translation = Translation(self.builder, _row, self.values)
        for node in self.nodes:
            if node.op == "call_function":
                translation.run(node)
        (output,) = (node for node in self.nodes if node.op == "output")
        results = [value for value in translation.given(output.args[0]) if value is not None]
        wrong = [value for value in results if not isinstance(value, Expr)]
        if wrong or not results:
            raise ImportModelError(f"the program returns {wrong or 'nothing'}; expected tensors")
        return results[0] if len(results) == 1 else make_tuple(results)
