"""``relax.op``: operators on graph values and traced tensors; ``mlc_compiler.ops`` with additions."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ..nn import Tensor
from ..relax import ops
from ..relax.nodes import Call


def graph_value(value: Any) -> Any:
    """Convert a traced tensor to its graph value; other values are returned unchanged."""
    return value.expr if isinstance(value, Tensor) else value


def _on_graph_values(operator: Callable[..., Call]) -> Callable[..., Call]:
    def call(*args: Any, **attrs: Any) -> Call:
        return operator(*map(graph_value, args), **attrs)

    return call


def linear(data: Any, weight: Any, bias: Any = None) -> Call:
    """``data @ weight.T + bias``, composed of ``permute_dims``, ``matmul`` and ``add``."""
    product = ops.matmul(graph_value(data), ops.permute_dims(graph_value(weight)))
    return product if bias is None else ops.add(product, graph_value(bias))


def __getattr__(name: str) -> Callable[..., Call]:
    return _on_graph_values(getattr(ops, name))


dense = _on_graph_values(ops.linear)
nn = SimpleNamespace(
    relu=_on_graph_values(ops.relu),
    silu=_on_graph_values(ops.silu),
    gelu=_on_graph_values(ops.gelu),
    softmax=_on_graph_values(ops.softmax),
    layer_norm=_on_graph_values(ops.layer_norm),
    rms_norm=_on_graph_values(ops.rms_norm),
    dense=dense,
)
