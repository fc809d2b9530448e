"""Translation of torch.fx graphs, node by node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import fx

from mlc_errors import MLCError
from mlc_runtime.arrays import as_numpy

from ...relax.builder import BlockBuilder
from ...relax.info import get_item, info_of
from ...relax.nodes import Constant, Expr, TupleStructInfo, Var
from ..blocks import number_table
from ..values import ImportModelError

WITHOUT_MEANING = frozenset({"device", "layout", "memory_format", "non_blocking", "pin_memory", "copy"})
"""Keyword arguments about the storage of a tensor, which are ignored."""

MOST_KNOWN = 1 << 20  # bytes of a result that is computed at import
KNOWN_DTYPES = frozenset({torch.bool, torch.int32, torch.int64, torch.float32})

Row = Callable[..., Any]
Rows = Callable[[fx.Node], Row | None]


def dtype_name(dtype: torch.dtype) -> str:
    """The dtype's name: ``torch.float32`` -> ``"float32"``."""
    return str(dtype).removeprefix("torch.")


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """The elements of a tensor as a contiguous array on the CPU."""
    return as_numpy(tensor.detach().cpu().contiguous())


def constant_of(tensor: torch.Tensor) -> Constant:
    """Convert a tensor to a constant of the graph."""
    return number_table(array_of(tensor))  # type: ignore[return-value]


def needed(graph: fx.Graph) -> list[fx.Node]:
    """The nodes on which the graph's outputs depend, in order; this drops assertions."""
    wanted: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "output" or node in wanted:
            wanted.update(node.all_input_nodes, [node])
    return [node for node in graph.nodes if node in wanted]


def operator_name(node: fx.Node) -> str:
    """The operator's name, such as ``aten.add.Tensor`` or ``operator.mul``."""
    if isinstance(node.target, torch._ops.OpOverload):
        return str(node.target)
    module = getattr(node.target, "__module__", "").lstrip("_")
    return f"{module}.{getattr(node.target, '__name__', node.target)}"


def require_rows(nodes: Iterable[fx.Node], rows: Rows) -> None:
    """Raise ImportModelError that lists all operators without a row and how often each occurs."""
    missing = Counter(operator_name(node) for node in nodes if node.op.startswith("call_") and rows(node) is None)
    if missing:
        listed = ", ".join(f"{op} ({count})" for op, count in sorted(missing.items()))
        hint = "express them by other operators, or compile the rest of the model and call these in between"
        raise ImportModelError(f"operators that cannot be imported: {listed}", hint=hint)


@dataclass
class Translation:
    """Translates nodes to bindings of the function being built.

    values: the values of the nodes translated so far. known: results of nodes that depend on no input or weight, such
    as positions and masks made of them, which PyTorch computes at import.
    """

    builder: BlockBuilder
    rows: Rows
    values: dict[fx.Node, Any]
    known: dict[fx.Node, torch.Tensor] = field(default_factory=dict)

    def run(self, node: fx.Node) -> None:
        """Bind the value of a ``call_…`` node. Raises ImportModelError, which names the node, for invalid arguments."""
        if (result := self._computed(node)) is not None:
            self.known[node], self.values[node] = result, constant_of(result)
            return
        row = self.rows(node)
        assert row is not None
        options = {k: v for k, v in node.kwargs.items() if k not in WITHOUT_MEANING}
        try:
            self.values[node] = self._bound(row(*self.given(node.args), **self.given(options)), node.name)
        except (ValueError, TypeError, MLCError, IndexError) as error:
            where = node.meta.get("stack_trace", "").strip().splitlines()
            hint = f"at {' '.join(where[-2:])}" if where else None
            raise ImportModelError(f"{node.format_node()}: {error}", hint=hint) from error

    def _computed(self, node: fx.Node) -> torch.Tensor | None:
        """The result of an operator on numbers and known tensors, up to MOST_KNOWN bytes; None for any other node."""
        op = node.target
        if not isinstance(op, torch._ops.OpOverload) or any(n not in self.known for n in node.all_input_nodes):
            return None
        if op._schema.is_mutable or torch.Tag.nondeterministic_seeded in op.tags or "empty" in op.name():
            return None
        planned = node.meta.get("val")
        if not isinstance(planned, torch.Tensor) or planned.dtype not in KNOWN_DTYPES or planned.nbytes > MOST_KNOWN:
            return None
        args, kwargs = fx.node.map_arg((node.args, {**node.kwargs}), lambda n: self.known[n])
        result: torch.Tensor = op(*args, **({**kwargs, "device": "cpu"} if "device" in kwargs else kwargs))
        return result

    def given(self, argument: Any) -> Any:
        """Replace nodes in an argument by their values, and dtypes by their names."""
        if isinstance(argument, fx.Node):
            return self.values[argument]
        if isinstance(argument, list | tuple):
            return [self.given(a) for a in argument]
        if isinstance(argument, Mapping):
            return {k: self.given(v) for k, v in argument.items()}
        return dtype_name(argument) if isinstance(argument, torch.dtype) else argument

    def _bound(self, value: Any, name: str) -> Any:
        if isinstance(value, list | tuple):
            return tuple(self._bound(v, name) for v in value)
        if isinstance(value, Var) or not isinstance(value, Expr):
            return value
        var = self.builder.emit(value, name)
        info = info_of(var)
        if not isinstance(info, TupleStructInfo):
            return var
        return tuple(self.builder.emit(get_item(var, i), name) for i in range(len(info.fields)))
