"""Import of an ONNX model as a module."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx

from mlc_errors import MLCError

from ...api import bind_params
from ...ir.expr import Var
from ...relax.builder import BlockBuilder
from ...relax.info import get_item, info_of, make_tuple, shape_of, tensor_info
from ...relax.nodes import Expr, TupleStructInfo
from ...relax.nodes import Var as GraphVar
from ..blocks import number_table
from ..imported import Imported
from ..values import ImportModelError, Size, plain
from . import arrays, operators

MAIN = "main"
OPSETS = range(13, 21)


def from_onnx(model: onnx.ModelProto, keep_params: bool = True) -> Imported:
    """Import a model's graph as the function ``main``, whose first parameters are the inputs.

        imported = from_onnx(onnx.load("model.onnx"))
        y = build(imported.mod)["main"](x, *imported.params.values())

    Named dimensions become symbolic sizes. One output is returned as a tensor, several as a tuple. keep_params:
    floating initializers with axes are arguments after the inputs; others, and all without ``keep_params``, are
    constants. Raises ImportModelError for opsets other than 13 to 20, for unsupported operators (all are listed), and
    for shapes and axes that depend on the inputs' elements.
    """
    _require_opset(model)
    _require_rows(model.graph)
    imported = _Importer(model.graph).run()
    if keep_params:
        return imported
    return Imported(bind_params(imported.mod, MAIN, imported.params), {})


def _require_opset(model: onnx.ModelProto) -> None:
    versions = {opset.domain: opset.version for opset in model.opset_import}
    if versions.get("", 0) not in OPSETS:
        hint = "onnx.version_converter.convert_version(model, 18)"
        raise ImportModelError(f"opset: got {versions}; expected 13 to 20", hint=hint)


def _require_rows(graph: onnx.GraphProto) -> None:
    known = {*operators.ROWS, *arrays.ROWS, "Shape", "Dropout"}
    missing = Counter(n.op_type for n in graph.node if n.op_type not in known or n.domain not in ("", "ai.onnx"))
    if missing:
        listed = ", ".join(f"{op} ({count})" for op, count in sorted(missing.items()))
        raise ImportModelError(f"operators that cannot be imported: {listed}")


class _Importer:
    """Imports one graph.

    values: by name, graph values, or numpy arrays of values known at import. known: names of inputs that must be known.
    """

    def __init__(self, graph: onnx.GraphProto):
        self.graph = graph
        self.builder = BlockBuilder()
        self.sizes: dict[str, Var] = {}
        self.values: dict[str, Any] = {"": None}
        self.params: dict[str, np.ndarray] = {}
        self.known = {
            name
            for node in graph.node
            for i, name in enumerate(node.input)
            if i in operators.KNOWN_INPUTS.get(node.op_type, ())
        }

    def run(self) -> Imported:
        weights = [v for tensor in self.graph.initializer for v in self._initializer(tensor)]
        inputs = [self._input(i) for i in self.graph.input if i.name not in self.values]
        with self.builder.function(MAIN, [*inputs, *weights], {"num_input": len(inputs)}):
            with self.builder.dataflow():
                for node in self.graph.node:
                    self._node(node)
                results = [self._tensor(self.values[o.name]) for o in self.graph.output]
                result = self.builder.emit_output(results[0] if len(results) == 1 else make_tuple(results))
            self.builder.emit_func_output(result)
        return Imported(self.builder.get(), self.params)

    def _initializer(self, tensor: onnx.TensorProto) -> list[GraphVar]:
        value = onnx.numpy_helper.to_array(tensor)
        if value.dtype.kind != "f" or not value.ndim or tensor.name in self.known:
            self.values[tensor.name] = value
            return []
        name = "".join(c if c.isalnum() else "_" for c in tensor.name)
        while name in self.params or not name.isidentifier():
            name = f"w{name}"
        self.params[name] = value
        self.values[tensor.name] = GraphVar(name, tensor_info(value.shape, str(value.dtype)))
        return [self.values[tensor.name]]

    def _input(self, given: onnx.ValueInfoProto) -> GraphVar:
        kind = given.type.tensor_type
        shape = [self._size(given.name, dim) for dim in kind.shape.dim]
        dtype = str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)))
        self.values[given.name] = GraphVar(given.name, tensor_info(shape, dtype))
        return self.values[given.name]

    def _size(self, name: str, dim: onnx.TensorShapeProto.Dimension) -> Size:
        if dim.HasField("dim_value"):
            return int(dim.dim_value)
        if not dim.dim_param:
            raise ImportModelError(f"the input {name} has an unknown size; expected numbers and names")
        return self.sizes.setdefault(dim.dim_param, Var(dim.dim_param))

    def _node(self, node: onnx.NodeProto) -> None:
        attrs = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        try:
            results = self._results(node, [self.values[name] for name in node.input], attrs)
        except (ValueError, TypeError, MLCError) as error:
            raise ImportModelError(f"{node.op_type} {node.name or node.output[0]}: {error}") from error
        self.values.update(zip(node.output, results, strict=False))
        if len(results) < len(node.output):
            raise ImportModelError(f"{node.op_type}: the result {node.output[len(results)]} is not computed")

    def _results(self, node: onnx.NodeProto, inputs: list[Any], attrs: dict[str, Any]) -> list[Any]:
        if node.op_type == "Shape":
            whole = inputs[0].shape if isinstance(inputs[0], np.ndarray) else shape_of(inputs[0])
            shape = [plain(s) for s in whole][attrs.get("start", 0) : attrs.get("end")]
            return [np.array(shape, object if any(not isinstance(s, int) for s in shape) else np.int64)]
        if node.op_type == "Dropout":
            return inputs[:1]
        if node.op_type in arrays.ROWS and all(v is None or isinstance(v, np.ndarray) for v in inputs):
            return [np.asarray(arrays.ROWS[node.op_type](*inputs, **attrs))]
        if node.op_type == "Split" and len(inputs) == 1:
            attrs.setdefault("num_outputs", len(node.output))
        if node.op_type not in operators.ROWS:
            raise ValueError("operands that are not known at import")
        known = operators.KNOWN_INPUTS.get(node.op_type, ())
        given = [self._known(v) if i in known else self._tensor(v) for i, v in enumerate(inputs)]
        return self._bound(operators.ROWS[node.op_type](*given, **attrs))

    def _bound(self, value: Expr) -> list[Expr]:
        if isinstance(value, GraphVar):
            return [value]
        var = self.builder.emit(value)
        info = info_of(var)
        if not isinstance(info, TupleStructInfo):
            return [var]
        return [self.builder.emit(get_item(var, i)) for i in range(len(info.fields))]

    def _known(self, value: Any) -> Any:
        if isinstance(value, Expr):
            raise ValueError("a shape, axes or number that depends on the inputs' elements")
        return value

    def _tensor(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        if value.dtype == object:
            raise ValueError(f"symbolic sizes {[str(v) for v in value.ravel()]} as elements of a tensor")
        return number_table(value)
