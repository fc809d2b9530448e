"""Channels of a model that can be scaled without changing its results, found in its graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlc_compiler.ir.module import IRModule
from mlc_compiler.relax import nodes as rx
from mlc_compiler.relax.dataflow import is_op, used_vars

NORMS = ("nn.rms_norm", "nn.layer_norm")
PARAMETERS = "packed_params"


@dataclass(frozen=True)
class Channels:
    """Values [..., K] that only linear layers read, so that scaling them can be undone in these layers' columns.

    producers: the parameters whose elements [first, first + K] along the first axis scale the values. consumers: the
    weights [N, K] of the linear layers.
    """

    producers: tuple[str, ...]
    first: int
    consumers: tuple[str, ...]

    @property
    def parameters(self) -> frozenset[str]:
        return frozenset((*self.producers, *self.consumers))


def scalable_channels(mod: IRModule, names: Sequence[str]) -> list[Channels]:
    """The channels after the norms and in the gated MLPs of a model with unquantized weights.

    names: the parameters, in the order of the functions' last argument. Only what all functions that read one of the
    parameters have in common is returned.
    """
    graphs = [_Graph(func, names) for func in mod.of_type(rx.Function).values()]
    found = [(set(graph.channels()), graph.read) for graph in graphs]
    every = dict.fromkeys(channels for own, _ in found for channels in sorted(own, key=str))
    return [c for c in every if all(c in own or not c.parameters & read for own, read in found)]


class _Graph:
    """One function: the value and the readers of every variable."""

    def __init__(self, func: rx.Function, names: Sequence[str]):
        bindings: list[Any] = [binding for block in func.blocks for binding in block.bindings]
        self.values: Mapping[int, Any] = {id(b.var): b.value for b in bindings}
        self.readers: dict[int, list[rx.Var]] = {}
        for binding in bindings:
            for var in used_vars(binding.value):
                self.readers.setdefault(id(var), []).append(binding.var)
        for var in used_vars(func.ret):
            self.readers.setdefault(id(var), []).append(var)
        self.names = {id(b.var): names[b.value.index] for b in bindings if _is_parameter(b.value)}
        self.vars = [binding.var for binding in bindings]

    @property
    def read(self) -> frozenset[str]:
        """The parameters that the function reads."""
        return frozenset(name for var, name in self.names.items() if var in self.readers)

    def channels(self) -> Iterator[Channels]:
        for var in self.vars:
            value, consumers = self.values[id(var)], self._linear_readers(var)
            if not consumers:
                continue
            if is_op(value, *NORMS):
                producers = [self._own_parameter(arg) for arg in value.args[1:]]
                if producers and None not in producers:
                    yield Channels(tuple(p for p in producers if p), 0, consumers)
            elif is_op(value, "multiply"):
                for factor in value.args:
                    yield from self._half(factor, consumers)

    def _half(self, factor: Any, consumers: tuple[str, ...]) -> Iterator[Channels]:
        """The channels of ``factor`` if it is the second half of a linear layer's result, and read once."""
        half = self._value(factor)
        split: Any = self._value(half.tuple_value) if isinstance(half, rx.TupleGetItem) else None
        if len(self.readers[id(factor)]) > 1 or not is_op(split, "split") or half.index != 1:
            return
        source: Any = self._value(split.args[0])
        if is_op(source, "linear") and len(source.args) == 2 and len(self.readers[id(split.args[0])]) == 1:
            weight, width = self._own_parameter(source.args[1]), factor.struct_info.shape[-1]
            halves = source.args[1].struct_info.shape[0].value == 2 * width.value
            if weight is not None and halves:
                yield Channels((weight,), width.value, consumers)

    def _linear_readers(self, var: rx.Var) -> tuple[str, ...]:
        """The weights of the linear layers that read ``var``; () if something else reads it, too."""
        found: list[Any] = [self.values.get(id(reader)) for reader in self.readers.get(id(var), [])]
        calls: list[Any] = [value if is_op(value, "linear") and value.args[0] is var else None for value in found]
        weights = [call and self._own_parameter(call.args[1]) for call in calls]
        return () if None in weights else tuple(w for w in weights if w)

    def _value(self, expr: Any) -> Any:
        return self.values.get(id(expr))

    def _own_parameter(self, expr: Any) -> str | None:
        """The parameter that ``expr`` is, if nothing else reads it."""
        name = self.names.get(id(expr))
        return name if name is not None and len(self.readers[id(expr)]) == 1 else None


def _is_parameter(value: Any) -> bool:
    return isinstance(value, rx.TupleGetItem) and getattr(value.tuple_value, "name", None) == PARAMETERS
