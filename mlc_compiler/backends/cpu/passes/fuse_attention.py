"""Fuse the matmuls around a softmax into one attention operator."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....ir import dtype as dt
from ....ir.module import IRModule
from ....passes.base import Pass
from ....relax import nodes as rx
from ....relax import ops
from ....relax.dataflow import Mutations, is_op, used_vars
from ....relax.info import shape_of, static_size, tensor_info_of
from ....relax.ops import get_operator

FEW_QUERIES = 3  # tiles of so few queries would be nearly empty


@dataclass(frozen=True)
class FuseAttention(Pass):
    """Replace ``softmax(query @ keys * scale + mask) @ values`` by ``nn.dense_attention``.

    Optional: the scale, the mask (added, or the condition of a ``where``), and the ``where`` that sets the weights of
    fully masked queries to 0. Not rewritten: matmuls with symbolic inner sizes or few queries, intermediate values with
    other readers, functions with in-place writes. Needs: common subexpressions eliminated.
    """

    name = "fuse-attention"

    def run(self, mod: IRModule) -> IRModule:
        return mod.updated({name: _rewrite(f, mod) for name, f in mod.of_type(rx.Function).items()})


def _rewrite(func: rx.Function, mod: IRModule) -> rx.Function:
    if not any(is_op(b.value, "nn.softmax") for b in func.bindings):
        return func
    if Mutations(func.bindings, mod.functions).positions:
        return func
    values = {id(b.var): b.value for b in func.bindings if b.var.dataflow}
    reads = Counter(id(v) for b in func.bindings for v in used_vars(b.value))
    blocks = []
    for block in func.blocks:
        bindings = [replace(b, value=_Match(values, reads).attention(b.value) or b.value) for b in block.bindings]
        blocks.append(replace(block, bindings=tuple(bindings)))
    return replace(func, blocks=tuple(blocks))


class _Match:
    """Matches one matmul with a softmax. values: of dataflow variables; reads: how often each variable is read."""

    def __init__(self, values: dict[int, rx.Expr], reads: Counter[int]):
        self.values = values
        self.reads = reads
        self.zero_rows = False

    def attention(self, value: rx.Expr) -> rx.Expr | None:
        """The ``nn.dense_attention`` that replaces a matmul; None if it is not attention."""
        args = _args(value, "matmul")
        weights = self._inner(args[0], "nn.softmax", "where") if args else None
        softmax = self._softmax(weights) if weights is not None else None
        found = self._scores(softmax.args[0], 1 + self.zero_rows) if softmax is not None else None
        if found is None:
            return None
        (query, keys), mask, scale = found
        if not _fits(value, query, keys, args[1], mask):
            return None
        optional = () if mask is None else (mask,)
        return ops.dense_attention(query, keys, args[1], *optional, scale=scale, zero_rows=self.zero_rows)

    def _inner(self, x: rx.Expr, *names: str, reads: int = 1) -> rx.Call | None:
        """The call of one of these operators that gave ``x``, if nothing else reads it."""
        value = self.values.get(id(x))
        return value if isinstance(value, rx.Call) and is_op(value, *names) and self.reads[id(x)] == reads else None

    def _softmax(self, weights: rx.Call) -> rx.Call | None:
        """The softmax over the last axis in ``weights``, or inside a ``where`` that zeroes fully masked queries."""
        if is_op(weights, "where"):
            sees, given, otherwise = weights.args
            softmax = self._inner(given, "nn.softmax")
            if softmax is None or _number(otherwise) != 0 or not self._is_seen(sees, softmax.args[0]):
                return None
            self.zero_rows, weights = True, softmax
        return weights if _is_along_last(weights) else None

    def _is_seen(self, sees: rx.Expr, scores: rx.Expr) -> bool:
        """Whether this is ``max(scores, axis=-1, keepdims=True) > -inf``."""
        greater = self._inner(sees, "greater")
        best = self._inner(greater.args[0], "max") if greater is not None else None
        if greater is None or best is None or best.args[0] is not scores or _number(greater.args[1]) != -math.inf:
            return False
        return _is_along_last(best) and bool(_attr(best, "keepdims"))

    def _scores(self, x: rx.Expr, reads: int) -> tuple[tuple[rx.Expr, ...], rx.Expr | None, float] | None:
        """Match (query, keys), mask and scale of scores with exactly ``reads`` reads."""
        masked = self._inner(x, "where", "add", reads=reads)
        if masked is None:
            plain = self._scaled(x, reads)
            return None if plain is None else (plain[0], None, plain[1])
        for given, mask in _masked(masked):
            scaled = self._scaled(given, 1)
            if scaled is not None:
                return scaled[0], mask, scaled[1]
        return None

    def _scaled(self, x: rx.Expr, reads: int) -> tuple[tuple[rx.Expr, ...], float] | None:
        """Match the operands of a matmul and its scale factor."""
        scaled = self._inner(x, "multiply", "divide", reads=reads)
        factor = _number(scaled.args[1]) if scaled is not None else 1.0
        if scaled is not None:
            x, reads = scaled.args[0], 1
        scores = self._inner(x, "matmul", reads=reads)
        if scores is None or factor is None or not (factor and math.isfinite(factor)):
            return None
        return scores.args, 1 / factor if scaled is not None and is_op(scaled, "divide") else factor


def _masked(call: rx.Call) -> Iterator[tuple[rx.Expr, rx.Expr]]:
    """Candidates (scores, mask) in ``where(mask, scores, -inf)`` or a sum."""
    if is_op(call, "add"):
        yield call.args[0], call.args[1]
        yield call.args[1], call.args[0]
    elif _number(call.args[2]) == -math.inf and tensor_info_of(call.args[0]).dtype == "bool":
        yield call.args[1], call.args[0]


def _fits(scores: rx.Expr, query: rx.Expr, keys: rx.Expr, values: rx.Expr, mask: rx.Expr | None) -> bool:
    """Whether the operands are floating matrices of static inner sizes with more than ``FEW_QUERIES`` queries."""
    infos = [tensor_info_of(x) for x in (query, keys, values)]
    if not all(dt.is_float(info.dtype) and len(info.shape or ()) > 1 for info in infos):
        return False
    if tensor_info_of(scores).dtype != infos[0].dtype or (
        mask is not None and len(shape_of(mask)) > len(shape_of(query))
    ):
        return False
    queries, inner, outer = (static_size(s) for s in (*shape_of(query)[-2:], shape_of(values)[-1]))
    return inner is not None and outer is not None and (queries is None or queries > FEW_QUERIES)


def _args(value: rx.Expr, name: str) -> tuple[rx.Expr, ...]:
    return value.args if isinstance(value, rx.Call) and is_op(value, name) else ()


def _attr(call: rx.Call, name: str) -> Any:
    return {**get_operator(call.target.name).defaults, **call.attrs}[name]


def _is_along_last(call: rx.Call) -> bool:
    axis = _attr(call, "axis")
    listed = axis if isinstance(axis, tuple) else (axis,)
    return listed in ((-1,), (len(shape_of(call.args[0])) - 1,))


def _number(x: rx.Expr) -> float | None:
    """The value of a constant of one element."""
    return float(np.ravel(x.data)[0]) if isinstance(x, rx.Constant) and x.data.size == 1 else None
