"""A matmul with its fused prologue and epilogue, as expressions of a row, a column and a position (K)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ....ir import expr as ir
from ....ir.expr import Cast, PrimExpr, Var, const, is_const
from ....ir.simplify import key
from ....ir.visitor import Rewriter, free_vars, substitute, walk
from ....schedules.rule import (
    accumulate_locally,
    analyse,
    constant_extent,
    match_matmul,
)
from ....tir.nodes import Block, Buffer, BufferLoad, BufferStore, PrimFunc
from ....tir.schedule import Schedule
from ....tir.schedule.access import update_operand
from ..machine import Gpu
from .gates import column_of, halves, interleaved_columns
from .packed import Packed, float8_weight, interleaved, packed_weight
from .tiles import CHUNK

FACTORS = {
    "float16": ("float16", "float8_e4m3fn", "float8_e5m2"),
    "bfloat16": ("bfloat16", "float8_e4m3fn", "float8_e5m2"),
    "float32": ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
}
"""For each dtype of activations, the dtypes of weights that it represents exactly."""


Epilogue = Callable[[PrimExpr, PrimExpr, Sequence[PrimExpr]], BufferStore]


@dataclass(frozen=True)
class FusedMatmul:
    """``out = epilogue(sum over k of activation[row, k] * weight[column, k])``.

    rows: the product of the leading sizes; columns, depth: constants. dtype: that of ``activation`` and ``weight`` in
    the multiplication. packed: the weight's codes, if an instruction unpacks them. epilogue: the store of one result,
    given its row, its column and the float32 sums that it depends on. statistics: reductions of the rows of the
    activations, in the order in which they are computed.

    gated: whether a result depends on two sums, as in SwiGLU (Shazeer 2020, "GLU Variants Improve Transformer"):
    ``out[row, c] = epilogue(sum[row, c], sum[row, c + results])``. ``columns`` and the columns of ``weight`` and
    ``packed`` are interleaved then, see ``gates.py``. results: columns of ``out``; equal to ``columns`` without gates.
    """

    rows: PrimExpr
    columns: int
    depth: int
    dtype: str
    activation: Operand
    weight: Operand
    packed: Packed | None
    epilogue: Epilogue
    results: int
    gated: bool
    statistics: tuple[Statistic, ...] = ()

    def activation_given(self, values: Mapping[int, PrimExpr], row: PrimExpr, k: PrimExpr) -> PrimExpr:
        """An activation, given the statistics of its row: identity of ``Statistic.buffer`` -> value."""
        return _Loads(values)(self.activation.element(row, k))


@dataclass(frozen=True)
class Statistic:
    """A reduction of each row that the activations depend on, such as the sum of squares of a normalization.

    buffer: the buffer from which ``FusedMatmul.activation`` and later statistics load it.
    op: ``+``, ``min`` or ``max``, which combines ``start`` and the terms of all positions.
    term: (earlier statistics, row, position) -> term.
    """

    buffer: Buffer
    op: str
    start: PrimExpr
    term: Callable[[Mapping[int, PrimExpr], PrimExpr, PrimExpr], PrimExpr]


@dataclass(frozen=True)
class Operand:
    """An operand of the matmul. element: its value at (row or column, position).

    stored: whether it is a parameter of the matmul's dtype, in which consecutive positions are adjacent and each row
    begins at a multiple of 16 bytes. by_column: whether values that are read for consecutive columns are adjacent.
    """

    element: Callable[[PrimExpr, PrimExpr], PrimExpr]
    stored: bool
    by_column: bool


@dataclass(frozen=True)
class Result:
    """The results of a matmul, for macros: ``result.out[result.place(…)] = result.value(…)``."""

    matmul: FusedMatmul

    @property
    def out(self) -> Buffer:
        zero = const(0, "int64")
        return self._store(zero, zero).buffer

    def place(self, row: PrimExpr, column: PrimExpr) -> tuple[PrimExpr, ...]:
        return self._store(row, column).indices

    def value(self, row: PrimExpr, column: PrimExpr, sums: Sequence[PrimExpr]) -> PrimExpr:
        return self.matmul.epilogue(row, column, sums).value

    def _store(self, row: PrimExpr, column: PrimExpr) -> BufferStore:
        return self.matmul.epilogue(row, column, [const(0.0, "float32")] * (1 + self.matmul.gated))


def match_fused_matmul(func: PrimFunc, gpu: Gpu) -> FusedMatmul | None:
    """Match a tensor function that computes a matmul and its statistics; None for any other function."""
    blocks = None if func.attrs.get("tir.is_scheduled") else analyse(func)
    if blocks is None or not blocks.reductions or int(func.attrs.get("num_outputs", 1)) != 1:
        return None
    *before, matmul_block = blocks.reductions
    matched = match_matmul(matmul_block)
    if matched is None or not matched.rows or len(matched.weight.shape) != 2:
        return None
    s, name = Schedule(func), matched.block.name
    names = [b.name for b in blocks.in_order]
    packed = packed_weight(func, blocks, matched.weight)
    reduced = [b.name for b in before]
    for producer in names[: names.index(name)]:
        if producer not in reduced:
            s.compute_inline(producer)
    last = accumulate_locally(s, name, names[names.index(name) + 1 :])
    matmul = fused_matmul_of(func, s.block(name), s.block(last), packed, gpu)
    statistics = [_statistic(s.block(b), s.block(name)) for b in reduced]
    found = tuple(f for f in statistics if f is not None)
    return None if matmul is None or len(found) < len(statistics) else replace(matmul, statistics=found)


def _statistic(block: Block, matmul: Block) -> Statistic | None:
    """Match a reduction of a matmul's rows over its depth; None for any other reduction."""
    *lead, last = block.iter_vars
    *rows, _, position = matmul.iter_vars
    sizes = [it.extent for it in rows]
    same = [key(it.extent) for it in lead] == [key(size) for size in sizes] and key(last.extent) == key(position.extent)
    store, init = block.body, block.init
    if not same or not isinstance(store, BufferStore) or not isinstance(init, BufferStore):
        return None
    operand = update_operand(store)
    if operand is None or [i for i in store.indices if isinstance(i, Var)] != [it.var for it in lead]:
        return None

    def term(values: Mapping[int, PrimExpr], row: PrimExpr, k: PrimExpr) -> PrimExpr:
        places = dict(zip((it.var for it in lead), unflattened(row, sizes), strict=True))
        return _Loads(values)(substitute(operand, {**places, last.var: k}))

    return Statistic(store.buffer, store.value.op, init.value, term)  # type: ignore[attr-defined]


def fused_matmul_of(func: PrimFunc, block: Block, last: Block, packed: Packed | None, gpu: Gpu) -> FusedMatmul | None:
    """The matmul of a block with inlined operands; None if unsupported. last: the block of the epilogue."""
    variables = [it.var for it in block.iter_vars]
    *lead, column, position = variables
    extents = [it.extent for it in block.iter_vars]
    columns, depth = constant_extent(extents[-2]), constant_extent(extents[-1])
    factors = _factors(block, column)
    if factors is None or columns is None or depth is None or not columns or not depth:
        return None
    x, w = factors
    if w.dtype not in FACTORS.get(x.dtype, ()) or any(v in free_vars(w) for v in lead):
        return None
    epilogue = _epilogue(last, block, extents[:-2], columns)
    if epilogue is None:
        return None
    results, gated, store = epilogue
    rows = ir.product(extents[:-2])
    parameters = {id(b) for b in func.buffers}

    def activation(row: PrimExpr, k: PrimExpr) -> PrimExpr:
        return substitute(x, {**dict(zip(lead, unflattened(row, extents[:-2]), strict=True)), position: k})

    def weight(n: PrimExpr, k: PrimExpr) -> PrimExpr:
        return ir.cast(x.dtype, substitute(w, {column: column_of(n, results) if gated else n, position: k}))

    if w.dtype != x.dtype:
        packed = float8_weight(w, column, position, x.dtype, gpu)
    if x.dtype == "float32":
        packed = None
    by_column = _is_by_column(w, column) and not (packed and packed.layouts)
    if gated and packed is not None:
        packed = interleaved(packed, results)
    return FusedMatmul(
        rows,
        interleaved_columns(results) if gated else columns,
        depth,
        x.dtype,
        Operand(activation, _is_stored(x, parameters, position, x.dtype), False),
        Operand(weight, _is_stored(w, parameters, position, x.dtype), by_column),
        packed,
        store,
        results,
        gated,
    )


def _factors(block: Block, column: Var) -> tuple[PrimExpr, PrimExpr] | None:
    """The activation and the weight, without their casts to float32; None unless sums are float32."""
    value = block.body.value.b  # type: ignore[attr-defined]  # matched as a matmul
    if value.dtype != "float32":
        return None
    sides = [side.value if isinstance(side, Cast) else side for side in (value.a, value.b)]
    of_column = [any(n is column for n in walk(side)) for side in sides]
    if sorted(of_column) != [False, True]:
        return None
    return (sides[1], sides[0]) if of_column[0] else (sides[0], sides[1])


def _is_stored(factor: PrimExpr, parameters: set[int], position: Var, dtype: str) -> bool:
    """Whether an operand is a load of a parameter as ``Operand.stored`` describes it."""
    if not isinstance(factor, BufferLoad) or id(factor.buffer) not in parameters or factor.dtype != dtype:
        return False
    *others, last = factor.indices
    width = constant_extent(factor.buffer.shape[-1])
    aligned = width is not None and width % CHUNK == 0
    return aligned and last is position and not any(n is position for n in walk(others))


def _is_by_column(factor: PrimExpr, column: Var) -> bool:
    """Whether a load of an operand has the column as its last index."""
    return any(isinstance(n, BufferLoad) and n.indices[-1] is column for n in walk(factor))


def unflattened(row: PrimExpr, sizes: Sequence[PrimExpr]) -> list[PrimExpr]:
    """The indices of an element of an array of these sizes, from its row-major index."""
    wide = [axis for axis, size in enumerate(sizes) if not is_const(size, 1)]
    indices: list[PrimExpr] = [const(0, "int64") for _ in sizes]
    for axis in reversed(wide):
        indices[axis] = row if axis == wide[0] else row % sizes[axis]
        row = row // sizes[axis]
    return indices


# -- the epilogue ------------------------------------------------------------------------------------------------------


class _Loads(Rewriter):
    """Replaces the loads of buffers, by identity, by values."""

    def __init__(self, values: Mapping[int, PrimExpr]):
        self.values = values

    def rewrite_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        return self.values[id(node.buffer)] if id(node.buffer) in self.values else self.rewrite_children(node)


class _Sums(Rewriter):
    """Replaces the loads of the sums by variables: the first for a result's own column, the second for its gate."""

    def __init__(self, sums: Buffer, distance: int):
        self.sums = sums
        self.distance = distance
        self.variables = (Var("sum", "float32"), Var("gated_sum", "float32"))

    def rewrite_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        if node.buffer is not self.sums:
            return self.rewrite_children(node)
        return self.variables[halves(node.indices[-1], self.distance)[1]]


def _epilogue(last: Block, block: Block, sizes: Sequence[PrimExpr], columns: int) -> tuple[int, bool, Epilogue] | None:
    """The columns of the result, whether it is gated, and the store of one result; see ``FusedMatmul``.

    None unless each result depends only on the sums of its own row and of its own column, or two columns if gated.
    """
    sums, store = block.writes[0].buffer, last.body
    if not isinstance(store, BufferStore) or last.is_reduction:
        return None
    loads = [n for n in walk(store.value) if isinstance(n, BufferLoad) and n.buffer is sums]
    places = [(*load.indices[:-1], *halves(load.indices[-1], columns // 2)) for load in loads]
    gated = any(half for *_, half in places)
    axes = {id(i): axis for *indices, _ in places for axis, i in enumerate(indices) if not is_const(i, 0)}
    own = {id(it.var): it for it in last.iter_vars}
    if not loads or not set(axes) <= set(own):
        return None
    results = columns // (1 + gated)
    if gated and any(not is_const(own[i].extent, results) for i, axis in axes.items() if axis == len(sizes)):
        return None
    if any(id(i) in axes and axes[id(i)] != axis for *indices, _ in places for axis, i in enumerate(indices)):
        return None
    if any(id(it.var) not in axes and not is_const(it.extent, 1) for it in last.iter_vars):
        return None
    to_variables = _Sums(sums, columns // 2)
    of_variables = to_variables(store)

    def result(row: PrimExpr, column: PrimExpr, values: Sequence[PrimExpr]) -> BufferStore:
        indices = [*unflattened(row, sizes), column]
        at = {it.var: indices[axes[v]] if v in axes else const(0, it.var.dtype) for v, it in own.items()}
        return substitute(of_variables, {**at, **dict(zip(to_variables.variables, values, strict=False))})

    return results, gated, result
