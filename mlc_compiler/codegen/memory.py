"""Emit loads and stores: scalar, vector, gather and scatter, masked under conditions."""

from __future__ import annotations

from ..ir import dtype as dt
from ..ir.expr import Cast, PrimExpr, const
from ..ir.simplify import Linear
from ..ir.visitor import substitute, walk
from ..tir.calling import flat_index
from ..tir.nodes import Buffer, BufferLoad
from . import llvm_ir as ll
from . import values as v
from .arithmetic import CodegenError
from .emitter import Emitter
from .values import I1, I32, I64, PTR, i32, i64


class MemoryEmitter(Emitter):
    """Emits accesses of buffers."""

    def address(self, buffer: Buffer, offset: ll.Value) -> ll.Value:
        base = self.buffers.get(id(buffer))
        if base is None:
            raise CodegenError(f"buffer {buffer.name!r} is not allocated here")
        return self.b.gep(base, [offset], source_etype=v.storage_type(buffer.dtype))

    def _flat(self, buffer: Buffer, indices: tuple[PrimExpr, ...]) -> PrimExpr:
        """The offset of an element, with ``vector_indices`` substituted."""
        flat = flat_index(buffer, indices)
        return substitute(flat, self.vector_indices) if self.vector_indices else flat

    def _stride(self, flat: PrimExpr) -> tuple[PrimExpr, int] | None:
        """The offset of lane 0 and the step between lanes; None when the offset is not linear in the lane."""
        assert self.lanes is not None
        form = self.analyzer.linear(flat)
        step, others = 0, dict(form.terms)
        for k, (atom, coefficient) in form.terms.items():
            if atom is self.lanes.var or (isinstance(atom, Cast) and atom.value is self.lanes.var):
                step = coefficient
                del others[k]
            elif any(n is self.lanes.var or id(n) in self.vector_vars for n in walk(atom)):
                return None
        return self.analyzer.build(Linear(form.const, others), "int64"), step

    # -- loads --------------------------------------------------------------------------------------------------

    def emit_BufferLoad(self, e: BufferLoad) -> ll.Value:
        flat = self._flat(e.buffer, e.indices)
        place = (flat, 0) if self.lanes is None else self._stride(flat)
        if place is not None and place[1] == 0:
            loaded = self._scalar_load(e.buffer, place[0])
        elif place is not None and place[1] == 1:
            loaded = self._vector_load(e.buffer, place[0])
        else:
            loaded = self._gather(e.buffer, flat)
        return v.from_memory(self.b, loaded, e.dtype)

    def _scalar_load(self, buffer: Buffer, offset: PrimExpr) -> ll.Value:
        element, align = v.storage_type(buffer.dtype), dt.nbytes(buffer.dtype)
        pointer = self.address(buffer, self(offset))
        if self.mask is None:
            return self.b.load(pointer, align=align, typ=element)
        any_lane = self.any_lane(self.mask)
        return self.b.load(self.b.select(any_lane, pointer, self._readable_zero(element)), align=align, typ=element)

    def any_lane(self, mask: ll.Value) -> ll.Value:
        """Whether any lane of a mask is set."""
        return v.intrinsic(self.b, f"llvm.vector.reduce.or.v{v.lanes_of(mask)}i1", [mask], I1)

    def _readable_zero(self, element: ll.Type) -> ll.Value:
        """The address of a zero, loaded instead when no lane is active."""
        with self.b.goto_entry_start():
            slot = self.b.alloca(element)
            self.b.store(ll.Constant(element, None), slot)
        return slot

    def alignment(self, buffer: Buffer, offset: PrimExpr, elements: int) -> int:
        """The alignment in bytes of a vector of ``elements`` elements from ``offset`` on: that of one element."""
        return dt.nbytes(buffer.dtype)

    def _vector_load(self, buffer: Buffer, offset: PrimExpr) -> ll.Value:
        assert self.lanes is not None
        align = self.alignment(buffer, offset, self.lanes.count)
        vector = ll.VectorType(v.storage_type(buffer.dtype), self.lanes.count)
        pointer = self.address(buffer, self(offset))
        if self.mask is None:
            return self.b.load(pointer, align=align, typ=vector)
        name = f"llvm.masked.load.{v.type_suffix(vector)}.p0"
        args = [pointer, i32(align), self.mask, ll.Constant(vector, None)]
        return v.intrinsic(self.b, name, args, vector)

    def _window(self, flat: PrimExpr) -> tuple[PrimExpr, list[int]] | None:
        """The start of a small window that the lanes read in a constant order, and their indices in it; else None."""
        assert self.lanes is not None
        if self.mask is not None or any(id(n) in self.vector_vars for n in walk(flat)):
            return None
        lanes = [const(i, self.lanes.var.dtype) for i in range(self.lanes.count)]
        forms = [self.analyzer.linear(substitute(flat, {self.lanes.var: lane})) for lane in lanes]
        steps = [form.add(forms[0], -1) for form in forms]
        if any(step.terms for step in steps):
            return None
        first = min(step.const for step in steps)
        places = [step.const - first for step in steps]
        if max(places) >= 2 * len(lanes):
            return None
        return self.analyzer.build(forms[0].add(Linear(first)), "int64"), places

    def _permuted_load(self, buffer: Buffer, offset: PrimExpr, places: list[int]) -> ll.Value:
        window = ll.VectorType(v.storage_type(buffer.dtype), max(places) + 1)
        loaded = self.b.load(self.address(buffer, self(offset)), align=dt.nbytes(buffer.dtype), typ=window)
        order = ll.Constant(ll.VectorType(I32, len(places)), [i32(p) for p in places])
        return self.b.shuffle_vector(loaded, ll.Constant(window, ll.Undefined), order)

    def _gather(self, buffer: Buffer, flat: PrimExpr) -> ll.Value:
        assert self.lanes is not None
        window = self._window(flat)
        if window is not None:
            return self._permuted_load(buffer, *window)
        lanes = self.lanes.count
        vector = ll.VectorType(v.storage_type(buffer.dtype), lanes)
        name = f"llvm.masked.gather.{v.type_suffix(vector)}.v{lanes}p0"
        align = i32(dt.nbytes(buffer.dtype))
        args = [self._lane_pointers(buffer, flat), align, self._full_mask(), ll.Constant(vector, None)]
        return v.intrinsic(self.b, name, args, vector)

    def _lane_pointers(self, buffer: Buffer, flat: PrimExpr) -> ll.Value:
        assert self.lanes is not None
        lanes = self.lanes.count
        offsets = v.splat(self.b, self(flat), lanes)
        size = v.constant(I64, dt.nbytes(buffer.dtype), lanes)
        base = v.splat(self.b, self.b.ptrtoint(self.address(buffer, i64(0)), I64), lanes)
        return self.b.inttoptr(self.b.add(base, self.b.mul(offsets, size)), ll.VectorType(PTR, lanes))

    def _full_mask(self) -> ll.Value:
        assert self.lanes is not None
        return v.constant(I1, 1, self.lanes.count) if self.mask is None else self.mask

    # -- stores -------------------------------------------------------------------------------------------------

    def store(self, buffer: Buffer, indices: tuple[PrimExpr, ...], value: ll.Value) -> None:
        """Store a value (a vector inside a vectorized loop) at an element."""
        value = v.to_memory(self.b, value, buffer.dtype)
        flat = self._flat(buffer, indices)
        if self.lanes is None:
            self.b.store(value, self.address(buffer, self(flat)), align=dt.nbytes(buffer.dtype))
            return
        place = self._stride(flat)
        value = v.splat(self.b, value, self.lanes.count)
        if place is not None and place[1] == 1:
            self._vector_store(buffer, place[0], value)
        else:
            self._scatter(buffer, flat, value)

    def _vector_store(self, buffer: Buffer, offset: PrimExpr, value: ll.Value) -> None:
        align = self.alignment(buffer, offset, v.lanes_of(value))
        pointer = self.address(buffer, self(offset))
        if self.mask is None:
            self.b.store(value, pointer, align=align)
            return
        name = f"llvm.masked.store.{v.type_suffix(value.type)}.p0"
        v.intrinsic(self.b, name, [value, pointer, i32(align), self.mask], v.VOID)

    def _scatter(self, buffer: Buffer, flat: PrimExpr, value: ll.Value) -> None:
        """Emit a scatter; lanes are stored in order, so for equal addresses the last lane's value is kept."""
        name = f"llvm.masked.scatter.{v.type_suffix(value.type)}.v{v.lanes_of(value)}p0"
        align = i32(dt.nbytes(buffer.dtype))
        v.intrinsic(self.b, name, [value, self._lane_pointers(buffer, flat), align, self._full_mask()], v.VOID)
