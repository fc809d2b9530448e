"""pad_einsum: round the extents of an einsum up, using zero-padded copies of its operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite

from ...ir.dtype import is_float
from ...ir.expr import (
    BinaryOp,
    Call,
    Cast,
    FloatImm,
    IntImm,
    PrimExpr,
    Var,
    ceildiv,
    const,
    is_const,
    logical_and,
)
from ...ir.simplify import key
from ...ir.visitor import Rewriter, substitute
from ..nodes import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    IterVar,
    PrimFunc,
    Stmt,
    loop_nest,
    open_nest,
    seq,
)
from ..regions import accesses, infer_regions
from .access import update_operand
from .affine import equal
from .blocks import block_nest, check_own_loops, rebuilt, with_intermediate
from .tree import (
    ScheduleError,
    analyzer_at,
    block_path,
    find_block,
    replace_stmts,
    single_store,
    true,
    unique_block_name,
    unique_buffer_name,
)

Access = BufferLoad | BufferStore
Sizes = Mapping[Var, PrimExpr]


@dataclass(frozen=True)
class _Einsum:
    """An einsum block with a loop nest of its own. value: the stored value, or the value added to the accumulator.

    sizes: the extents of the block variables; padded: the new extents of those that grow.
    """

    realize: BlockRealize
    nest: Stmt
    store: BufferStore
    value: PrimExpr
    sizes: Sizes
    padded: Sizes

    @property
    def block(self) -> Block:
        return self.realize.block

    @property
    def growing(self) -> list[Access]:
        """The distinct accesses whose shape grows, operands first, then the result."""
        operands: list[Access] = [*accesses(self.value)[0], self.store]
        distinct = {_place(a): a for a in operands}
        return [a for a in distinct.values() if any(v in self.padded for v in _variables(a))]


def pad_einsum(func: PrimFunc, name: str, padding: Sequence[int]) -> PrimFunc:
    """Round the extent of each variable of a block up to a multiple of its entry of ``padding``.

    The block may only multiply and add elements whose indices are block variables or constants. Operands with an index
    that grows are copied to larger buffers, padded with zeros, before the block; a result that grows is copied back
    after it. Raises ScheduleError for a reduction to which the zeros would contribute.
    """
    einsum = _einsum(func, name, padding)
    _check_result(einsum)
    _check_value(einsum, einsum.value)
    _check_contributions(einsum)
    buffers: dict[object, Buffer] = {}
    for access in einsum.growing:
        func, buffers[_place(access)] = _with_copy(func, einsum, access)
    return replace_stmts(func, {einsum.nest: _padded_nest(einsum, buffers)})


def _place(access: Access) -> object:
    return id(access.buffer), key(access.indices)


def _variables(access: Access) -> list[Var]:
    return list(dict.fromkeys(i for i in access.indices if isinstance(i, Var)))


# -- preconditions ------------------------------------------------------------------------------------------------


def _error(text: str) -> ScheduleError:
    return ScheduleError(f"pad_einsum: {text}")


def _einsum(func: PrimFunc, name: str, padding: Sequence[int]) -> _Einsum:
    realize, nest = find_block(func, name), block_nest(func, name)
    block, store = realize.block, single_store(realize.block)
    if len(padding) != len(block.iter_vars) or any(p < 1 for p in padding):
        names = ", ".join(it.var.name for it in block.iter_vars)
        raise _error(f"got padding {list(padding)}; expected a positive number for each of {names}")
    check_own_loops("pad_einsum", realize, nest)
    value = store.value if block.init is None else update_operand(store)
    if value is None or block.is_reduction != (block.init is not None):
        raise _error(f"block {name!r} is no product, sum, minimum or maximum with its initialisation")
    sizes = {it.var: it.extent for it in block.iter_vars}
    analyzer = analyzer_at(block_path(func, name)[:-1])
    factors = (const(p, it.extent.dtype) for it, p in zip(block.iter_vars, padding, strict=True))
    padded = {v: analyzer.simplify(ceildiv(size, p) * p) for (v, size), p in zip(sizes.items(), factors, strict=True)}
    growing = {v: size for v, size in padded.items() if not equal(size, sizes[v], analyzer)}
    return _Einsum(realize, nest, store, value, sizes, growing)


def _check_result(einsum: _Einsum) -> None:
    """Raise ScheduleError unless each element of the result is written for one value of the spatial variables."""
    name, written = einsum.block.name, einsum.store.buffer
    if accesses(einsum.block.init)[0]:
        raise _error(f"block {name!r} initialises {written.name!r} with elements of buffers")
    _check_indices(einsum, einsum.store)
    spatial = {it.var for it in einsum.block.iter_vars if it.kind == "S"}
    if set(_variables(einsum.store)) != spatial:
        raise _error(f"the indices of {written.name!r} are not the spatial variables of block {name!r}")
    if any(load.buffer is written for load in accesses(einsum.value)[0]):
        raise _error(f"block {name!r} reads {written.name!r}, which it writes")


def _check_indices(einsum: _Einsum, access: Access) -> None:
    if not all(isinstance(i, IntImm) or i in einsum.sizes for i in access.indices):
        raise _error(f"an index of {access.buffer.name!r} is neither a constant nor a variable of the block")


def _check_value(einsum: _Einsum, value: PrimExpr) -> None:
    """Raise ScheduleError unless a value consists of loads and constants combined by casts, sums and products."""
    if isinstance(value, BinaryOp) and value.op in ("+", "-", "*"):
        _check_value(einsum, value.a)
        _check_value(einsum, value.b)
    elif isinstance(value, Cast):
        _check_value(einsum, value.value)
    elif isinstance(value, BufferLoad):
        _check_indices(einsum, value)
    elif not isinstance(value, IntImm | FloatImm):
        raise _error(f"block {einsum.block.name!r} computes more than sums and products of elements")


def _check_contributions(einsum: _Einsum) -> None:
    for it in einsum.block.iter_vars:
        if it.kind != "R" or it.var not in einsum.padded:
            continue
        assert isinstance(einsum.store.value, BinaryOp)
        if einsum.store.value.op != "+" or not _vanishes(einsum.value, it.var):
            raise _error(f"zeros beyond the extent of {it.var.name!r} would contribute to block {einsum.block.name!r}")


def _vanishes(value: PrimExpr, var: Var) -> bool:
    """Whether a value is 0 when all loads indexed by ``var`` are 0; not for 0 times a possibly infinite operand."""
    if isinstance(value, BufferLoad):
        return any(i is var for i in value.indices)
    if isinstance(value, Cast):
        return _vanishes(value.value, var)
    if not isinstance(value, BinaryOp):
        return is_const(value, 0)
    parts = [_vanishes(part, var) for part in (value.a, value.b)]
    if value.op != "*" or all(parts):
        return all(parts)
    return any(parts) and (not is_float(value.dtype) or _is_finite(value.a) or _is_finite(value.b))


def _is_finite(value: PrimExpr) -> bool:
    return isinstance(value, FloatImm) and isfinite(value.value)


# -- the blocks ---------------------------------------------------------------------------------------------------


def _with_copy(func: PrimFunc, einsum: _Einsum, access: Access) -> tuple[PrimFunc, Buffer]:
    """Add the padded buffer of an operand or of the result, and the block that copies it."""
    old = access.buffer
    sizes = {**einsum.sizes, **einsum.padded}
    shape = tuple(sizes[i] if isinstance(i, Var) else s for i, s in zip(access.indices, old.shape, strict=True))
    padded = replace(old, name=unique_buffer_name(func, f"{old.name}_pad"), shape=shape)
    name = unique_block_name(func, padded.name)
    if isinstance(access, BufferStore):
        order = (einsum.nest, _copy(name, access, padded, old, einsum.sizes, {}))
    else:
        order = (_copy(name, access, old, padded, einsum.sizes, einsum.padded), einsum.nest)
    func = replace_stmts(func, {einsum.nest: seq(*order)})
    return with_intermediate(func, padded, name), padded


def _copy(name: str, access: Access, source: Buffer, target: Buffer, sizes: Sizes, padded: Sizes) -> Stmt:
    """Loops around a block that copies the accessed elements; it writes zeros where its variables exceed ``sizes``."""
    old = _variables(access)
    block_vars = {v: Var(f"v{i}", v.dtype) for i, v in enumerate(old)}
    loops = [(Var(f"i{i}", v.dtype), padded.get(v, sizes[v])) for i, v in enumerate(old)]
    indices = substitute(access.indices, block_vars)
    value: PrimExpr = source[indices]
    inside = [block_vars[v] < sizes[v] for v in old if v in padded]
    if inside:
        value = Call("if_then_else", (logical_and(*inside), value, const(0, value.dtype)), value.dtype)
    store = BufferStore(target, value, indices)
    iters = tuple(IterVar(block_vars[v], extent, "S") for v, (_, extent) in zip(old, loops, strict=True))
    block = Block(name, iters, *infer_regions(store, iters), store)
    return loop_nest(loops, BlockRealize(tuple(var for var, _ in loops), true(), block))


class _Redirect(Rewriter):
    """Replaces the buffers of an einsum's accesses, keyed by ``_place``."""

    def __init__(self, buffers: Mapping[object, Buffer]):
        self.buffers = buffers

    def rewrite_BufferLoad(self, node: BufferLoad) -> BufferLoad:
        return replace(node, buffer=self.buffers.get(_place(node), node.buffer))

    def rewrite_BufferStore(self, node: BufferStore) -> BufferStore:
        return replace(node, buffer=self.buffers.get(_place(node), node.buffer), value=self(node.value))


def _padded_nest(einsum: _Einsum, buffers: Mapping[object, Buffer]) -> Stmt:
    block, redirect = einsum.block, _Redirect(buffers)
    iters = tuple(replace(it, extent=einsum.padded.get(it.var, it.extent)) for it in block.iter_vars)
    nest: Stmt = replace(
        einsum.realize, block=rebuilt(replace(block, iter_vars=iters), redirect(block.body), redirect(block.init))
    )
    extents = dict(zip(einsum.realize.iter_values, (it.extent for it in iters), strict=True))
    for loop in reversed(open_nest(einsum.nest)[0]):
        nest = replace(loop, extent=extents[loop.var], body=nest)
    return nest
