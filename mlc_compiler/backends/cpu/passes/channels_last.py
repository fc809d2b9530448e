"""Compute convolutions with the channels of images last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from ....ir.expr import is_const
from ....ir.module import IRModule
from ....ir.simplify import key
from ....passes.base import Pass
from ....relax import nodes as rx
from ....relax import ops
from ....relax.dataflow import Mutations, is_op, replace_vars
from ....relax.info import make_tuple, shape_of
from ....relax.ops import elementwise
from ....relax.ops.registry import Operator

LAYOUTS = {1: "NWC", 2: "NHWC", 3: "NDHWC"}
CONVOLUTIONS = {f"nn.conv{n}d": layout for n, layout in LAYOUTS.items()}
POOLING = {f"nn.{kind}_pool{n}d": layout for n, layout in LAYOUTS.items() for kind in ("max", "avg")}
REDUCTIONS = ("mean", "sum", "max", "min", "variance", "std")
ELEMENTWISE = frozenset(o.name for o in vars(elementwise).values() if isinstance(o, Operator))


@dataclass(frozen=True)
class ChannelsLast(Pass):
    """Compute convolutions, and the operators on their results, on tensors [N, *size, C] instead of [N, C, *size].

    A convolution is transposed on both sides and its padding becomes a separate operator, so that output channels are
    the SIMD lanes, whatever the window. Element-wise operators, pooling, reductions, padding, concatenations, group
    norms and softmax of such tensors use the same layout, and consecutive transpositions are merged or cancelled.
    ``EliminateDead`` drops unused ones. Functions with in-place writes are left unchanged.
    """

    name = "channels-last"

    def run(self, mod: IRModule) -> IRModule:
        return mod.updated({name: _rewrite(f, mod) for name, f in mod.of_type(rx.Function).items()})


def _rewrite(func: rx.Function, mod: IRModule) -> rx.Function:
    if not any(is_op(binding.value, *CONVOLUTIONS) for binding in func.bindings):
        return func
    if Mutations(func.bindings, mod.functions).positions:
        return func
    blocks = tuple(_Block().run(block) if block.dataflow else block for block in func.blocks)
    return replace(func, blocks=blocks)


def to_last(rank: int) -> tuple[int, ...]:
    """The permutation of [N, C, *size] that gives [N, *size, C]."""
    return (0, *range(2, rank), 1)


def to_first(rank: int) -> tuple[int, ...]:
    """The permutation of [N, *size, C] that gives [N, C, *size]."""
    return (0, rank - 1, *range(1, rank - 1))


@dataclass
class _Block:
    """Rewrites one dataflow block. last: identity of a variable -> the same tensor with the channels last."""

    last: dict[int, rx.Expr] = field(default_factory=dict)
    values: dict[int, rx.Expr] = field(default_factory=dict)
    renamed: dict[int, rx.Expr] = field(default_factory=dict)
    bindings: list[rx.Binding] = field(default_factory=list)

    def run(self, block: rx.BindingBlock) -> rx.BindingBlock:
        for binding in block.bindings:
            self._add(replace(binding, value=replace_vars(binding.value, self.renamed)))
        return replace(block, bindings=tuple(self.bindings))

    def _add(self, binding: rx.Binding) -> None:
        value = self._transposed(binding.value) if is_op(binding.value, "permute_dims") else binding.value
        if isinstance(value, rx.Var) and binding.var.dataflow:
            self.renamed[id(binding.var)] = value
            return
        rewritten = self._rewritten(value)
        if rewritten is None:
            self._bind(replace(binding, value=value))
        elif _rank(rewritten) < 3:  # without spatial axes both layouts are the same
            self._bind(replace(binding, value=rewritten))
        else:
            self.last[id(binding.var)] = self._emit(rewritten, binding.var.name)
            back = ops.permute_dims(self.last[id(binding.var)], axes=to_first(_rank(binding.var)))
            self._bind(replace(binding, value=back))

    def _bind(self, binding: rx.Binding) -> None:
        self.values[id(binding.var)] = binding.value
        self.bindings.append(binding)

    def _emit(self, value: rx.Expr, name: str) -> rx.Expr:
        var = rx.Var(f"{name}_last", value.struct_info, dataflow=True)
        self._bind(rx.Binding(var, value))
        return var

    # -- transpositions -------------------------------------------------------------------------------------------

    def _transposed(self, value: rx.Expr) -> rx.Expr:
        """A transposition composed with the one that made its operand; the source itself if they cancel."""
        assert isinstance(value, rx.Call)
        rank = _rank(value)
        given = _attrs(value)["axes"]
        axes = tuple(reversed(range(rank))) if given is None else tuple(a % rank for a in given)
        return self._permuted(value.args[0], axes)

    def _permuted(self, x: rx.Expr, axes: tuple[int, ...]) -> rx.Expr:
        inner = self.values.get(id(x))
        if isinstance(inner, rx.Call) and is_op(inner, "permute_dims") and inner.attrs.get("axes") is not None:
            first = inner.attrs["axes"]
            return self._permuted(inner.args[0], tuple(first[a] % len(axes) for a in axes))
        return x if axes == tuple(range(len(axes))) else ops.permute_dims(x, axes=axes)

    def _with_channels_last(self, x: rx.Expr) -> rx.Expr:
        if id(x) not in self.last:
            value = self._permuted(x, to_last(_rank(x)))
            self.last[id(x)] = (
                self._emit(value, getattr(x, "name", "constant")) if isinstance(value, rx.Call) else value
            )
        return self.last[id(x)]

    # -- operators ------------------------------------------------------------------------------------------------

    def _rewritten(self, value: rx.Expr) -> rx.Expr | None:
        """Rewrite an operator for tensors with the channels last; None for one that is left unchanged."""
        if not isinstance(value, rx.Call) or not isinstance(value.target, rx.Op):
            return None
        name = value.target.name
        if name in CONVOLUTIONS:
            return self._convolution(value)
        rewrite = REWRITES.get(name)
        operands = chain.from_iterable(a.fields if isinstance(a, rx.Tuple) else (a,) for a in value.args)
        return None if rewrite is None or not any(id(a) in self.last for a in operands) else rewrite(self, value)

    def _convolution(self, call: rx.Call) -> rx.Expr | None:
        layout = CONVOLUTIONS[call.target.name]
        if _attrs(call)["data_layout"] == layout:
            return None
        x, weight = call.args
        widths = _sides(_attrs(call)["padding"], _rank(x) - 2)
        image = self._with_channels_last(x)
        if any(widths):
            image = self._emit(ops.pad(image, pad_width=(0, 0, *widths, 0, 0)), "padded")
        return _operator(call)(image, weight, **{**_attrs(call), "padding": 0, "data_layout": layout})

    def _pooling(self, call: rx.Call) -> rx.Expr:
        layout = POOLING[call.target.name]
        return _operator(call)(self._with_channels_last(call.args[0]), **{**_attrs(call), "layout": layout})

    def _reduction(self, call: rx.Call) -> rx.Expr | None:
        """Rewrite a reduction that keeps its axes or reduces all spatial axes; None for any other."""
        (x,), axis, rank = call.args, _attrs(call)["axis"], _rank(call.args[0])
        given = range(rank) if axis is None else (axis,) if isinstance(axis, int) else axis
        axes = sorted(a % rank for a in given)
        if not _attrs(call)["keepdims"] and axes != list(range(2, rank)):
            return None
        attrs = {**_attrs(call), "axis": tuple(_moved(a, rank) for a in axes)}
        return _operator(call)(self._with_channels_last(x), **attrs)

    def _padding(self, call: rx.Call) -> rx.Expr:
        widths, rank = _attrs(call)["pad_width"], _rank(call)
        moved = tuple(widths[2 * a + side] for a in to_last(rank) for side in (0, 1))
        return ops.pad(self._with_channels_last(call.args[0]), **{**_attrs(call), "pad_width": moved})

    def _group_norm(self, call: rx.Call) -> rx.Expr:
        x, *vectors = call.args
        rank = _rank(x)
        axes = _attrs(call)["axes"]
        listed = (axes,) if isinstance(axes, int) else axes
        moved = {
            "channel_axis": _moved(_attrs(call)["channel_axis"], rank),
            "axes": tuple(_moved(a, rank) for a in listed),
        }
        return ops.group_norm(self._with_channels_last(x), *vectors, **{**_attrs(call), **moved})

    def _along_axis(self, call: rx.Call) -> rx.Expr:
        """Rewrite an operator with the attribute ``axis``: concatenation, softmax."""
        attrs = {**_attrs(call), "axis": _moved(_attrs(call)["axis"], _rank(call))}
        (x,) = call.args
        if isinstance(x, rx.Tuple):
            return _operator(call)(make_tuple([self._with_channels_last(f) for f in x.fields]), **attrs)
        return _operator(call)(self._with_channels_last(x), **attrs)

    def _elementwise(self, call: rx.Call) -> rx.Expr:
        rank = _rank(call)
        return _operator(call)(*(self._operand(x, rank) for x in call.args), **_attrs(call))

    def _operand(self, x: rx.Expr, rank: int) -> rx.Expr:
        """An operand that is broadcast to ``rank`` axes, for a result with the channels last."""
        if not isinstance(x.struct_info, rx.TensorStructInfo) or _rank(x) == 0:
            return x
        if _rank(x) == rank:
            return self._with_channels_last(x)
        sizes = shape_of(x)
        if len(sizes) == rank - 1 and all(is_const(size, 1) for size in sizes[1:]):
            return self._vector(x)
        whole = self._emit(ops.reshape(x, (*(1 for _ in range(rank - len(sizes))), *sizes)), "whole")
        return self._with_channels_last(whole)

    def _vector(self, x: rx.Expr) -> rx.Expr:
        """[C, 1, …] as [C]: the tensor that it was reshaped from, or a new reshape."""
        value, size = self.values.get(id(x)), shape_of(x)[0]
        if is_op(value, "reshape", "expand_dims"):
            source = shape_of(value.args[0])  # type: ignore[union-attr]
            if len(source) == 1 and key(source[0]) == key(size):
                return value.args[0]  # type: ignore[union-attr]
        return self._emit(ops.reshape(x, (size,)), "vector")


REWRITES: dict[str, Callable[[_Block, rx.Call], rx.Expr | None]] = {
    **dict.fromkeys(POOLING, _Block._pooling),
    **dict.fromkeys(REDUCTIONS, _Block._reduction),
    **dict.fromkeys(ELEMENTWISE, _Block._elementwise),
    "nn.pad": _Block._padding,
    "nn.group_norm": _Block._group_norm,
    "nn.softmax": _Block._along_axis,
    "concat": _Block._along_axis,
}


def _operator(call: rx.Call) -> Operator:
    return ops.get_operator(call.target.name)


def _attrs(call: rx.Call) -> dict[str, Any]:
    """The attributes of a call, defaults included."""
    return {**_operator(call).defaults, **call.attrs}


def _rank(x: rx.Expr) -> int:
    return len(shape_of(x))


def _moved(axis: int, rank: int) -> int:
    """The position in [N, *size, C] of an axis of [N, C, *size]."""
    return to_last(rank).index(axis % rank)


def _sides(padding: Any, places: int) -> Sequence[int]:
    """The widths before and after each axis in turn, from the attribute of a convolution."""
    listed = (padding,) if isinstance(padding, int) else tuple(padding)
    both = listed * (2 * places // len(listed))
    return list(chain.from_iterable(zip(both[:places], both[places:], strict=True)))
