"""Import of an ONNX model as a module."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx

from mlc_errors import MLCError

from ...api import bind_params
from ...ir.expr import PrimExpr, Var
from ...relax import ops
from ...relax.builder import BlockBuilder
from ...relax.info import info_of, make_tuple, shape_of, tensor_info
from ...relax.nodes import Expr, TupleStructInfo
from ...relax.nodes import Var as GraphVar
from ..blocks import number_table
from ..imported import Imported
from ..values import ImportModelError, Size, plain
from . import arrays, operators
from .functions import with_functions_inlined
from .recurrent import unstacked

MAIN = "main"
OPSETS = range(13, 24)
DATA_DEPENDENT = frozenset({"Compress", "NonMaxSuppression", "NonZero", "Unique"})
"""Operators whose results' shapes depend on elements; imported if their operands are constants."""
EVALUATED = frozenset({"Constant", "If", "Loop", "Scan", "Shape", "Size"})
"""Operators without a row, which are evaluated at import."""
MOST_STEPS = 4096  # of a Loop
KNOWN = frozenset(operators.ROWS) | DATA_DEPENDENT | EVALUATED


def from_onnx(model: onnx.ModelProto, keep_params: bool = True) -> Imported:
    """Import a model's graph as the function ``main``, whose first parameters are the inputs.

        imported = from_onnx(onnx.load("model.onnx"))
        y = build(imported.mod)["main"](x, *imported.params.values())

    Named dimensions become symbolic sizes. One output is returned as a tensor, several as a tuple. keep_params:
    floating initializers with axes are arguments after the inputs; others, and all without ``keep_params``, are
    constants. The model's functions are inlined, and for operators without a row the functions that define them in
    ONNX's schemas. Raises ImportModelError for opsets other than 13 to 23, for unsupported operators (all are listed),
    and for shapes, axes, conditions and numbers of iterations that depend on the inputs' elements.
    """
    opset = _require_opset(model)
    if not all(map(_is_known, _nodes(model.graph))):
        model = with_functions_inlined(model, KNOWN, opset)
    _require_rows(model.graph)
    imported = _Importer(model.graph, opset).run()
    if keep_params:
        return imported
    return Imported(bind_params(imported.mod, MAIN, imported.params), {})


def _require_opset(model: onnx.ModelProto) -> int:
    """The opset of ONNX's own operators."""
    versions = {opset.domain: opset.version for opset in model.opset_import}
    if versions.get("", 0) not in OPSETS:
        hint = "onnx.version_converter.convert_version(model, 18)"
        raise ImportModelError(f"opset: got {versions}; expected {OPSETS[0]} to {OPSETS[-1]}", hint=hint)
    return versions[""]


def _is_known(node: onnx.NodeProto) -> bool:
    return node.domain in ("", "ai.onnx") and node.op_type in KNOWN


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of its nodes' subgraphs."""
    for node in graph.node:
        yield node
        for attr in node.attribute:
            yield from _nodes(attr.g)


def _require_rows(graph: onnx.GraphProto) -> None:
    missing = Counter(node.op_type for node in graph.node if not _is_known(node))
    if missing:
        listed = ", ".join(f"{op} ({count})" for op, count in sorted(missing.items()))
        raise ImportModelError(f"operators that cannot be imported: {listed}")


def _slices(value: Any, axis: int) -> list[Any]:
    """The slices along an axis, without it. Raises ValueError for a symbolic size."""
    return list(np.moveaxis(value, axis, 0)) if isinstance(value, np.ndarray) else unstacked(value, axis)


class _Importer:
    """Imports one graph.

    values: by name, graph values, or numpy arrays of values known at import. known: names of inputs that must be known.
    """

    def __init__(self, graph: onnx.GraphProto, opset: int):
        self.graph, self.opset = graph, opset
        self.builder = BlockBuilder()
        self.sizes: dict[str, Var] = {}
        self.values: dict[str, Any] = {"": None}
        self.params: dict[str, np.ndarray] = {}
        self.known = {
            name
            for node in _nodes(graph)
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
        if not kind.HasField("shape"):
            raise ImportModelError(f"the input {given.name} has no shape; expected a tensor, its numbers and names")
        shape = [self._size(given.name, dim) for dim in kind.shape.dim]
        self.values[given.name] = GraphVar(given.name, tensor_info(shape, arrays.dtype_named(kind.elem_type)))
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
            name = node.name or next(filter(None, node.output))
            raise ImportModelError(f"{node.op_type} {name}: {error}") from error
        if missing := [name for name in node.output[len(results) :] if name]:
            raise ImportModelError(f"{node.op_type}: the result {missing[0]} is not computed")
        self.values |= {name: value for name, value in zip(node.output, results, strict=False) if name}

    def _results(self, node: onnx.NodeProto, inputs: list[Any], attrs: dict[str, Any]) -> list[Any]:
        match node.op_type:
            case "Shape" | "Size":
                return [self._sizes(node.op_type, inputs[0], **attrs)]
            case "If":
                return self._branch(*inputs, **attrs)
            case "Loop":
                return self._loop(*inputs, **attrs)
            case "Scan":
                return self._scan(*inputs, **attrs)
        if all(v is None or isinstance(v, np.ndarray) for v in inputs):
            if not any(v is not None and v.dtype == object for v in inputs):
                try:
                    return arrays.evaluated(node, inputs, self.opset)
                except ValueError:  # the evaluator's GatherElements has at most 64 elements along the axis
                    if node.op_type not in operators.ROWS:
                        raise
            elif node.op_type in arrays.ROWS:
                return [np.asarray(arrays.ROWS[node.op_type](*inputs, **attrs))]
        if node.op_type in DATA_DEPENDENT:
            raise ValueError("a result whose shape depends on elements that are not known at import")
        if node.op_type == "Split" and len(inputs) == 1:
            attrs.setdefault("num_outputs", len(node.output))
        known = operators.KNOWN_INPUTS.get(node.op_type, ())
        given = [self._known(v) if i in known else self._tensor(v) for i, v in enumerate(inputs)]
        results = operators.ROWS[node.op_type](*given, **attrs)
        parts = results if isinstance(results, list | tuple) else [results]
        return [bound for part in parts[: len(node.output)] for bound in self._bound(part)]

    def _sizes(self, kind: str, value: Any, start: int = 0, end: int | None = None) -> np.ndarray:
        """The result of Shape or Size, of objects if it is symbolic."""
        whole = [plain(s) for s in (value.shape if isinstance(value, np.ndarray) else shape_of(value))]
        found = np.array(whole[start:end] if kind == "Shape" else plain(math.prod(whole)), object)
        return found.astype(np.int64) if all(isinstance(s, int) for s in found.flat) else found

    def _branch(self, condition: Any, then_branch: onnx.GraphProto, else_branch: onnx.GraphProto) -> list[Any]:
        """The results of the branch of If that is taken."""
        if isinstance(condition, Expr):
            raise ValueError("a condition that depends on the inputs' elements")
        return self._subgraph(then_branch if condition.item() else else_branch)

    def _loop(self, trips: Any, condition: Any, *carried: Any, body: onnx.GraphProto) -> list[Any]:
        """The carried values after the iterations of Loop, which are unrolled, and their other results, stacked."""
        results: list[list[Any]] = []
        values, limit = list(carried), None if trips is None else self._number(trips)
        while (condition is None or self._number(condition)) and (limit is None or len(results) < limit):
            if len(results) == MOST_STEPS:
                raise ValueError(f"got more than {MOST_STEPS} iterations")
            condition, *made = self._subgraph(body, [np.array(len(results)), np.array(True), *values])
            values, row = made[: len(values)], made[len(values) :]
            results.append(row)
        if not results and len(body.output) > 1 + len(values):
            raise ValueError("got no iteration; expected one or more, whose results are stacked")
        return [*values, *(self._stacked(parts) for parts in zip(*results, strict=True))]

    def _scan(
        self,
        *inputs: Any,
        body: onnx.GraphProto,
        num_scan_inputs: int,
        scan_input_axes: Sequence[int] = (),
        scan_input_directions: Sequence[int] = (),
        scan_output_axes: Sequence[int] = (),
        scan_output_directions: Sequence[int] = (),
    ) -> list[Any]:
        """The last states of Scan, whose steps are unrolled, and their other results, stacked."""
        count = len(inputs) - num_scan_inputs
        axes, reverse = scan_input_axes or [0] * num_scan_inputs, scan_input_directions or [0] * num_scan_inputs
        columns = [
            _slices(value, axis)[:: -1 if backward else 1]
            for value, axis, backward in zip(inputs[count:], axes, reverse, strict=True)
        ]
        values, results = list(inputs[:count]), []
        for row in zip(*columns, strict=True):
            made = self._subgraph(body, [*values, *row])
            values = made[:count]
            results.append(made[count:])
        outputs = list(zip(*results, strict=True))
        axes, reverse = scan_output_axes or [0] * len(outputs), scan_output_directions or [0] * len(outputs)
        stacked = (
            self._stacked(parts[:: -1 if backward else 1], axis)
            for parts, axis, backward in zip(outputs, axes, reverse, strict=True)
        )
        return [*values, *stacked]

    def _subgraph(self, graph: onnx.GraphProto, inputs: Sequence[Any] = ()) -> list[Any]:
        """The results of a node's subgraph for values of its inputs."""
        _require_rows(graph)
        self.values |= {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
        self.values |= {given.name: value for given, value in zip(graph.input, inputs, strict=True)}
        for node in graph.node:
            self._node(node)
        return [self.values[output.name] for output in graph.output]

    def _stacked(self, parts: Sequence[Any], axis: int = 0) -> Any:
        if all(isinstance(part, np.ndarray) for part in parts):
            return np.stack(parts, axis)
        return self.builder.emit(ops.stack([self._tensor(part) for part in parts], axis=axis))

    @staticmethod
    def _number(value: Any) -> Any:
        """A number of iterations, or the condition of the next one."""
        if isinstance(value, Expr) or isinstance(value.item(), PrimExpr):
            raise ValueError("a number of iterations that depends on the inputs' elements or sizes")
        return value.item()

    def _bound(self, value: Expr) -> list[Expr]:
        """Bind a value, and the fields of a tuple."""
        if isinstance(value, GraphVar):
            return [value]
        var = self.builder.emit(value)
        return list(self.builder.split_tuple(var)) if isinstance(info_of(var), TupleStructInfo) else [var]

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
