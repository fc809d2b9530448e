"""Inlining of the functions in a model, and of those that define operators in ONNX's schemas."""

from __future__ import annotations

from collections.abc import Collection

import onnx
import onnx.inliner


def with_functions_inlined(model: onnx.ModelProto, kept: Collection[str], opset: int) -> onnx.ModelProto:
    """Inline the functions of a model, and of ONNX's schemas except for the operators ``kept``."""
    model = onnx.inliner.inline_local_functions(model)
    for node in model.graph.node:
        if node.op_type not in kept and onnx.defs.has(node.op_type, opset, node.domain):
            _set_defaults(node, onnx.defs.get_schema(node.op_type, opset, node.domain))
    names = [("", name) for name in kept]
    try:
        return onnx.inliner.inline_selected_functions(model, names, exclude=True, inline_schema_functions=True)
    except RuntimeError:  # a function whose body depends on types that the inliner does not infer
        return model


def _set_defaults(node: onnx.NodeProto, schema: onnx.defs.OpSchema) -> None:
    """Set attributes that are not given to their defaults: the inliner drops those that a function's body refers to."""
    given = {attr.name for attr in node.attribute}
    defaults = [a.default_value for a in schema.attributes.values() if a.name not in given]
    node.attribute.extend(value for value in defaults if value.name)
