"""Expressions that compute a parameter from checkpoint tensors; shapes are checked before data is read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import prod
from typing import Any

import numpy as np

from mlc_errors import MLCError

Shape = tuple[int, ...]
Read = Callable[[str], np.ndarray]
ReadRows = Callable[[str], Iterator[np.ndarray]]


class Expr(ABC):
    """A node; ``parts`` are its operands."""

    parts: tuple[Expr, ...]

    def sources(self) -> Iterator[str]:
        """Names of the checkpoint tensors read, in order."""
        for part in self.parts:
            yield from part.sources()

    def map_names(self, rename: Callable[[str], str]) -> Expr:
        """The same expression over renamed checkpoint tensors."""
        node: Any = self  # every kind of node is a dataclass
        return replace(node, parts=tuple(part.map_names(rename) for part in self.parts))

    @abstractmethod
    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        """Shape of the value, given the shapes of the checkpoint tensors. Raises MLCError if they do not fit."""

    @abstractmethod
    def evaluate(self, read: Read) -> np.ndarray:
        """The value; ``read`` returns a checkpoint tensor."""

    def row_blocks(self, read: Read, read_rows: ReadRows) -> Iterator[np.ndarray]:
        """The value in blocks along axis 0, to bound memory; read_rows returns a checkpoint tensor in blocks."""
        yield self.evaluate(read)


def as_expr(value: str | Expr) -> Expr:
    return CheckpointTensor(value) if isinstance(value, str) else value


def is_stacked_rows(value: Expr) -> bool:
    """Whether the value is a checkpoint tensor or a concatenation of some along axis 0."""
    match value:
        case CheckpointTensor():
            return True
        case Concat(axis=0):
            return all(map(is_stacked_rows, value.parts))
    return False


@dataclass(frozen=True)
class CheckpointTensor(Expr):
    """A checkpoint tensor, unchanged."""

    name: str

    def sources(self) -> Iterator[str]:
        yield self.name

    def map_names(self, rename: Callable[[str], str]) -> Expr:
        return CheckpointTensor(rename(self.name))

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        return shapes[self.name]

    def evaluate(self, read: Read) -> np.ndarray:
        return read(self.name)

    def row_blocks(self, read: Read, read_rows: ReadRows) -> Iterator[np.ndarray]:
        yield from read_rows(self.name)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Either(Expr):
    """The first of the parts whose checkpoint tensors exist; the first part if there is none."""

    parts: tuple[Expr, ...]

    def among(self, names: Container[str]) -> Expr:
        """The part for a checkpoint with tensors of these names."""
        fitting = (part for part in self.parts if all(name in names for name in part.sources()))
        return next(fitting, self.parts[0])

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        return self.among(shapes).shape(shapes)

    def evaluate(self, read: Read) -> np.ndarray:
        raise NotImplementedError("a weight plan has the part that the checkpoint fits")

    def __str__(self) -> str:
        return " or ".join(map(str, self.parts))


@dataclass(frozen=True)
class Concat(Expr):
    """Operands joined along an existing axis."""

    parts: tuple[Expr, ...]
    axis: int = 0

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        all_shapes = [part.shape(shapes) for part in self.parts]
        first = all_shapes[0]
        rest = {_without(shape, self.axis) for shape in all_shapes}
        if len(rest) != 1 or not 0 <= self.axis < len(first):
            raise MLCError(f"cannot concatenate along axis {self.axis}: got shapes {_list(all_shapes)}")
        joined = sum(shape[self.axis] for shape in all_shapes)
        return (*first[: self.axis], joined, *first[self.axis + 1 :])

    def evaluate(self, read: Read) -> np.ndarray:
        return np.concatenate([part.evaluate(read) for part in self.parts], axis=self.axis)

    def row_blocks(self, read: Read, read_rows: ReadRows) -> Iterator[np.ndarray]:
        if self.axis == 0:
            for part in self.parts:
                yield from part.row_blocks(read, read_rows)
            return
        for blocks in zip(*(part.row_blocks(read, read_rows) for part in self.parts)):
            if len({len(block) for block in blocks}) > 1:  # rows of different formats come in different numbers
                yield self.evaluate(read)
                return
            yield np.concatenate(blocks, axis=self.axis)

    def __str__(self) -> str:
        return f"concat({', '.join(map(str, self.parts))}, axis={self.axis})"


@dataclass(frozen=True)
class Stack(Expr):
    """Operands of one shape joined along a new axis 0 (the experts of a layer)."""

    parts: tuple[Expr, ...]

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        all_shapes = [part.shape(shapes) for part in self.parts]
        if len(set(all_shapes)) != 1:
            raise MLCError(f"cannot stack tensors of different shapes: got {_list(all_shapes)}")
        return (len(self.parts), *all_shapes[0])

    def evaluate(self, read: Read) -> np.ndarray:
        return np.stack([part.evaluate(read) for part in self.parts])

    def row_blocks(self, read: Read, read_rows: ReadRows) -> Iterator[np.ndarray]:
        for part in self.parts:
            yield part.evaluate(read)[None]

    def __str__(self) -> str:
        return f"stack({', '.join(map(str, self.parts))})"


@dataclass(frozen=True)
class Transpose(Expr):
    """The last two axes swapped; a vector (a bias) stays as it is."""

    parts: tuple[Expr]

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        shape = self.parts[0].shape(shapes)
        return shape if len(shape) < 2 else (*shape[:-2], shape[-1], shape[-2])

    def evaluate(self, read: Read) -> np.ndarray:
        return _transposed(self.parts[0].evaluate(read))

    def row_blocks(self, read: Read, read_rows: ReadRows) -> Iterator[np.ndarray]:
        for block in self.parts[0].row_blocks(read, read_rows):
            if block.ndim == 2:
                yield self.evaluate(read)
                return
            yield _transposed(block)

    def __str__(self) -> str:
        return f"transpose({self.parts[0]})"


@dataclass(frozen=True)
class Oriented(Expr):
    """A tensor of three axes, of which the last two are swapped unless it has the shape ``expected``: for layouts
    that differ between versions of a checkpoint.
    """

    parts: tuple[Expr]
    expected: Shape

    def _chosen(self, shape: Shape) -> Expr:
        return self.parts[0] if shape == self.expected else Transpose(self.parts)

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        return self._chosen(self.parts[0].shape(shapes)).shape(shapes)

    def evaluate(self, read: Read) -> np.ndarray:
        value = self.parts[0].evaluate(read)
        return value if value.shape == self.expected else _transposed(value)

    def row_blocks(self, read: Read, read_rows: ReadRows) -> Iterator[np.ndarray]:
        for block in self.parts[0].row_blocks(read, read_rows):
            yield block if block.shape[1:] == self.expected[1:] else _transposed(block)

    def __str__(self) -> str:
        return f"oriented({self.parts[0]}, {list(self.expected)})"


@dataclass(frozen=True)
class Taps(Expr):
    """[K, C] from the weight of a depthwise convolution, [C, 1, K] or [C, K]; a vector (a bias) stays as it is."""

    parts: tuple[Expr]

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        shape = self.parts[0].shape(shapes)
        if len(shape) == 3 and shape[1] != 1:
            raise MLCError(f"cannot take taps of {list(shape)}; expected [channels, 1, taps]")
        return shape if len(shape) < 2 else (shape[-1], shape[0])

    def evaluate(self, read: Read) -> np.ndarray:
        value = self.parts[0].evaluate(read)
        return value if value.ndim < 2 else value.reshape(value.shape[0], value.shape[-1]).T

    def __str__(self) -> str:
        return f"taps({self.parts[0]})"


@dataclass(frozen=True)
class Flatten(Expr):
    """The axes after the first joined to one; a vector (a bias) stays as it is."""

    parts: tuple[Expr]

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        shape = self.parts[0].shape(shapes)
        return shape if len(shape) < 2 else (shape[0], int(np.prod(shape[1:])))

    def evaluate(self, read: Read) -> np.ndarray:
        value = self.parts[0].evaluate(read)
        return value if value.ndim < 2 else value.reshape(len(value), -1)

    def __str__(self) -> str:
        return f"flatten({self.parts[0]})"


@dataclass(frozen=True)
class Slice(Expr):
    """Elements ``start`` to ``stop`` along an axis."""

    parts: tuple[Expr]
    axis: int
    start: int
    stop: int

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        shape = self.parts[0].shape(shapes)
        if not (0 <= self.axis < len(shape) and 0 <= self.start <= self.stop <= shape[self.axis]):
            raise MLCError(f"cannot take {self.start}:{self.stop} along axis {self.axis} of {list(shape)}")
        return (*shape[: self.axis], self.stop - self.start, *shape[self.axis + 1 :])

    def evaluate(self, read: Read) -> np.ndarray:
        index = (slice(None),) * self.axis + (slice(self.start, self.stop),)
        return self.parts[0].evaluate(read)[index]

    def __str__(self) -> str:
        return f"slice({self.parts[0]}, axis={self.axis}, {self.start}:{self.stop})"


@dataclass(frozen=True)
class Permute(Expr):
    """An axis reshaped to ``view``, transposed by ``order`` and flattened again (rows of attention heads)."""

    parts: tuple[Expr]
    view: tuple[int, ...]
    order: tuple[int, ...]
    axis: int = 0

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        shape = self.parts[0].shape(shapes)
        if self.axis >= len(shape) or int(np.prod(self.view)) != shape[self.axis]:
            raise MLCError(f"cannot view axis {self.axis} of {list(shape)} as {list(self.view)}")
        return shape

    def evaluate(self, read: Read) -> np.ndarray:
        return self._permuted(self.parts[0].evaluate(read))

    def row_blocks(self, read: Read, read_rows: ReadRows) -> Iterator[np.ndarray]:
        if self.axis == 0:
            yield self.evaluate(read)
            return
        yield from map(self._permuted, self.parts[0].row_blocks(read, read_rows))

    def _permuted(self, value: np.ndarray) -> np.ndarray:
        before, after = value.shape[: self.axis], value.shape[self.axis + 1 :]
        moved = range(self.axis, self.axis + len(self.view))
        order = (*range(self.axis), *(moved[i] for i in self.order), *range(moved.stop, moved.stop + len(after)))
        return value.reshape(*before, *self.view, *after).transpose(order).reshape(value.shape)

    def __str__(self) -> str:
        along = f", axis={self.axis}" if self.axis else ""
        return f"permute({self.parts[0]}, {list(self.view)}, {list(self.order)}{along})"


@dataclass(frozen=True)
class Reshape(Expr):
    """The same elements with another shape."""

    parts: tuple[Expr]
    new_shape: Shape

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        shape = self.parts[0].shape(shapes)
        if prod(shape) != prod(self.new_shape):
            raise MLCError(f"cannot view {list(shape)} as {list(self.new_shape)}")
        return self.new_shape

    def evaluate(self, read: Read) -> np.ndarray:
        return self.parts[0].evaluate(read).reshape(self.new_shape)

    def __str__(self) -> str:
        return f"reshape({self.parts[0]}, {list(self.new_shape)})"


@dataclass(frozen=True)
class Ranges(Expr):
    """All of axis 0 in another order: ``ranges`` (start, stop), one after the other."""

    parts: tuple[Expr]
    ranges: tuple[tuple[int, int], ...]

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        shape = self.parts[0].shape(shapes)
        if not shape or sum(stop - start for start, stop in self.ranges) != shape[0]:
            raise MLCError(
                f"cannot divide axis 0 of {list(shape)} into {len(self.ranges)} ranges of the config's sizes"
            )
        return shape

    def evaluate(self, read: Read) -> np.ndarray:
        value = self.parts[0].evaluate(read)
        return np.concatenate([value[start:stop] for start, stop in self.ranges])

    def __str__(self) -> str:
        return f"ranges({self.parts[0]}, {len(self.ranges)})"


@dataclass(frozen=True)
class Offset(Expr):
    """A constant added to every element, computed in float32 (norm weights stored as w - 1)."""

    parts: tuple[Expr]
    value: float

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        return self.parts[0].shape(shapes)

    def evaluate(self, read: Read) -> np.ndarray:
        return self.parts[0].evaluate(read).astype(np.float32) + np.float32(self.value)

    def __str__(self) -> str:
        return f"offset({self.parts[0]}, {self.value:g})"


@dataclass(frozen=True)
class Scaled(Expr):
    """Every element multiplied by a constant, computed in float32 (multipliers of a layer's inputs and results)."""

    parts: tuple[Expr]
    factor: float

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        return self.parts[0].shape(shapes)

    def evaluate(self, read: Read) -> np.ndarray:
        value = self.parts[0].evaluate(read)
        return value if self.factor == 1 else value.astype(np.float32) * np.float32(self.factor)

    def __str__(self) -> str:
        return f"scaled({self.parts[0]}, {self.factor:g})"


@dataclass(frozen=True, eq=False)
class ScaledAxis(Expr):
    """Elements multiplied by factors, float32 [size of ``axis``], one for each index along an axis; in float32."""

    parts: tuple[Expr]
    factors: np.ndarray
    axis: int

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        return self.parts[0].shape(shapes)

    def evaluate(self, read: Read) -> np.ndarray:
        return self._scaled(self.parts[0].evaluate(read), self.factors)

    def row_blocks(self, read: Read, read_rows: ReadRows) -> Iterator[np.ndarray]:
        start = 0
        for block in self.parts[0].row_blocks(read, read_rows):
            own = self.factors[start : start + len(block)] if self.axis == 0 else self.factors
            yield self._scaled(block, own)
            start += len(block)

    def _scaled(self, value: np.ndarray, factors: np.ndarray) -> np.ndarray:
        return value.astype(np.float32) * factors.reshape(-1, *[1] * (value.ndim - 1 - self.axis))

    def __str__(self) -> str:
        known = sha256(self.factors.tobytes()).hexdigest()[:16]
        return f"scaled({self.parts[0]}, axis={self.axis}, by {len(self.factors)} factors {known})"


@dataclass(frozen=True)
class NegativeExp(Expr):
    """``-exp(x)`` of every element, computed in float32 (Mamba stores the logarithms of rates of decay)."""

    parts: tuple[Expr]

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        return self.parts[0].shape(shapes)

    def evaluate(self, read: Read) -> np.ndarray:
        return -np.exp(self.parts[0].evaluate(read).astype(np.float32))

    def __str__(self) -> str:
        return f"negative_exp({self.parts[0]})"


@dataclass(frozen=True)
class UnitRows(Expr):
    """Every row divided by its Euclidean length, computed in float32."""

    parts: tuple[Expr]

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        return self.parts[0].shape(shapes)

    def evaluate(self, read: Read) -> np.ndarray:
        value = self.parts[0].evaluate(read).astype(np.float32)
        return value / np.maximum(np.linalg.norm(value, axis=-1, keepdims=True), np.float32(1e-12))

    def __str__(self) -> str:
        return f"unit_rows({self.parts[0]})"


@dataclass(frozen=True)
class Computed(Expr):
    """An arbitrary function of arrays in the checkpoint's dtypes."""

    parts: tuple[Expr, ...]
    function: Callable[..., np.ndarray]

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        """The shape of the function's result for zeros."""
        return self._call([np.broadcast_to(np.float32(0), part.shape(shapes)) for part in self.parts]).shape

    def evaluate(self, read: Read) -> np.ndarray:
        return self._call([part.evaluate(read) for part in self.parts])

    def _call(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        try:
            return np.asarray(self.function(*arrays))
        except Exception as error:
            got = ", ".join(f"{array.dtype} {list(array.shape)}" for array in arrays)
            raise MLCError(f"{self} failed: got {got}; {type(error).__name__}: {error}") from error

    def __str__(self) -> str:
        return f"{getattr(self.function, '__name__', 'function')}({', '.join(map(str, self.parts))})"


def _transposed(value: np.ndarray) -> np.ndarray:
    return value if value.ndim < 2 else np.swapaxes(value, -1, -2)


def _without(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])


def _list(shapes: list[Shape]) -> str:
    return ", ".join(str(list(shape)) for shape in shapes)
