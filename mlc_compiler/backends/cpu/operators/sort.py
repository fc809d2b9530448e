"""Sorting on a CPU: a radix sort of each row."""

from __future__ import annotations

from math import log

from ....ir import dtype as dt
from ....ir.expr import INDEX_DTYPE, IntImm, PrimExpr, Var, binary, const, min_value
from ....relax.info import static_size
from ....relax.ops import search
from ....relax.ops.axes import normalize_axis
from ....relax.tensor_call import NoKernel
from ....tir import nodes as tir
from ....tir import te
from ....tir.math.build import bits
from ....tir.nodes import BufferStore, For, IfThenElse, seq

DIGIT = 8  # bits
VALUES = 1 << DIGIT
SHORTEST = VALUES // 4  # elements of a row; the counts of digits take longer than a merge sort of shorter ones
NAN_BITS = {"int32": 0x7FC00000, "int64": 0x7FF8000000000000}


def argsort(data: te.Tensor, *, axis: int = -1, descending: bool = False, dtype: str = "int32") -> te.Tensor:
    """Kernel of the operator ``argsort``. Raises NoKernel for short rows."""
    return search.sorted_places(data, axis, descending, dtype, _order)


def sort(data: te.Tensor, *, axis: int = -1, descending: bool = False) -> te.Tensor:
    """Kernel of the operator ``sort``. Raises NoKernel for short rows."""
    return search.sorted_elements(data, axis, descending, _order)


def topk(
    data: te.Tensor, *, k: int = 1, axis: int = -1, ret_type: str = "both", largest: bool = True, dtype: str = "int32"
) -> te.Tensor | list[te.Tensor]:
    """Kernel of the operator ``topk`` for many elements. Raises NoKernel for few of them, and for short rows."""
    size = static_size(data.shape[normalize_axis(axis, data.ndim)])
    if k > 0 and (size is None or _steps_of_insertion(k, size) < _steps_of_sort(size, data.dtype)):
        raise NoKernel
    return search.best_elements(data, k, axis, ret_type, largest, dtype, _order)


def _steps_of_insertion(k: int, size: int) -> float:
    """The mean number of moves in a sorted list of ``k`` elements, for elements in random order."""
    return size + k * (1 + log(size / k)) * k / 2


def _steps_of_sort(size: int, dtype: str) -> int:
    return 2 * max(size, VALUES) * max(1, dt.bits(dtype) // DIGIT)


def _order(data: te.Tensor, axis: int, descending: bool, dtype: str) -> te.Tensor:
    """The sorted indices of each row: by the lowest digit of the keys first, each time in the order so far."""
    size, known = data.shape[axis], static_size(data.shape[axis])
    if known is not None and known < SHORTEST:
        raise NoKernel
    places = tir.buffer("indices", data.shape, dtype)
    key = _key(data[tuple(IntImm(0) for _ in data.shape)], descending)
    rows = _Rows(size, key.dtype, INDEX_DTYPE if known is None else "int32")

    def row(*lead: PrimExpr) -> tir.Stmt:
        def index(at: PrimExpr) -> tuple[PrimExpr, ...]:
            return (*lead[:axis], at, *lead[axis:])

        at, last = Var("at"), Var("at")
        return seq(
            For(at, size, rows.put(IntImm(0), at, _key(data[index(at)], descending), at)),
            rows.count_digits(),
            *(rows.sort_by(digit) for digit in range(rows.digits)),
            For(last, size, BufferStore(places, te.cast(rows.places[rows.source.value, last], dtype), index(last))),
        )

    lead = data.shape[:axis] + data.shape[axis + 1 :]
    return te.extern([places], [data], te.each(lead, "argsort", row, rows.scratch))[0]


def _key(element: PrimExpr, descending: bool) -> PrimExpr:
    """An integer whose digits, as those of an unsigned number, have the order of the elements; NaN is the greatest."""
    if dt.is_float(element.dtype):
        value = element if element.dtype == "float64" else te.f32(element)
        key = bits(value)
        key = te.select(binary("==", value, value), key, const(NAN_BITS[key.dtype], key.dtype))
        key = te.select(binary("==", value, const(0.0, value.dtype)), const(0, key.dtype), key)
        sign = key >> const(dt.bits(key.dtype) - 1, key.dtype)
        key = key ^ (sign | min_value(key.dtype))
    elif element.dtype == "uint64":
        key = te.cast(element, "int64")
    else:
        narrow = dt.bits(element.dtype) < 32 or element.dtype == "int32"
        key = te.cast(element, "int32" if narrow else "int64")
        key = key ^ min_value(key.dtype)
    return key ^ const(-1, key.dtype) if descending else key


class _Rows:
    """A row's keys and their places, in two copies of which ``source`` is the current one, and the counts of digits."""

    def __init__(self, size: PrimExpr, key: str, place: str):
        self.size, self.digits, self.place = size, dt.bits(key) // DIGIT, place
        self.keys = tir.buffer("keys", (2, size), key)
        self.places = tir.buffer("places", (2, size), place)
        self.counts = tir.buffer("counts", (self.digits, VALUES), place)
        self.source, self.value = te.Cell("source", INDEX_DTYPE), te.Cell("value", INDEX_DTYPE)
        self.total, self.count = te.Cell("total", place), te.Cell("count", place)
        cells = (self.source, self.value, self.total, self.count)
        self.scratch = [self.keys, self.places, self.counts, *(cell.buffer for cell in cells)]

    def put(self, copy: PrimExpr, at: PrimExpr, key: PrimExpr, place: PrimExpr) -> tir.Stmt:
        """Store an element."""
        stored = BufferStore(self.places, te.cast(place, self.place), (copy, at))
        return seq(BufferStore(self.keys, key, (copy, at)), stored)

    def digit_of(self, copy: PrimExpr, at: PrimExpr, digit: int) -> PrimExpr:
        """A digit of a key, the lowest one first."""
        key = self.keys[copy, at]
        return te.cast((key >> const(digit * DIGIT, key.dtype)) & const(VALUES - 1, key.dtype), INDEX_DTYPE)

    def count_digits(self) -> tir.Stmt:
        """Count how often each digit has each value."""
        digit, value, at = Var("digit"), Var("value"), Var("at")
        clear = BufferStore(self.counts, const(0, self.place), (digit, value))

        def add(number: int) -> tir.Stmt:
            place = (IntImm(number), self.digit_of(IntImm(0), at, number))
            return BufferStore(self.counts, self.counts[place] + const(1, self.place), place)

        return seq(
            For(digit, IntImm(self.digits), For(value, IntImm(VALUES), clear)),
            For(at, self.size, seq(*map(add, range(self.digits)))),
            self.source.set(0),
        )

    def sort_by(self, digit: int) -> tir.Stmt:
        """Move the elements to the other copy, in the order of a digit, unless it is the same in all of them."""
        value, at, row = Var("value"), Var("at"), IntImm(digit)
        source = self.source.value
        start = seq(
            self.count.set(self.counts[row, value]),
            BufferStore(self.counts, self.total.value, (row, value)),
            self.total.set(self.total.value + self.count.value),
        )
        place = (row, self.value.value)
        key, slot = self.keys[source, at], te.cast(self.count.value, INDEX_DTYPE)
        move = seq(
            self.value.set(self.digit_of(source, at, digit)),
            self.count.set(self.counts[place]),
            BufferStore(self.counts, self.count.value + const(1, self.place), place),
            self.put(1 - source, slot, key, self.places[source, at]),
        )
        each = For(at, self.size, move)
        steps = seq(self.total.set(0), For(value, IntImm(VALUES), start), each, self.source.set(1 - source))
        first = te.cast(self.counts[row, self.digit_of(source, IntImm(0), digit)], INDEX_DTYPE)
        several = IfThenElse(first < self.size, steps)
        return several if static_size(self.size) else IfThenElse(self.size > 0, several)
