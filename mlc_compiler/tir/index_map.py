"""Layouts of tensors, as maps from logical to stored indices."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from mlc_errors import MLCError

from ..ir.expr import BinaryOp, ExprLike, IntImm, PrimExpr, Var, as_expr, binary, ceildiv, const, is_const
from ..ir.simplify import Analyzer
from ..ir.visitor import substitute


class IndexMapError(MLCError, ValueError):
    """An index map that cannot be parsed, or that has no inverse."""


@dataclass(frozen=True)
class Digit:
    """A digit of a logical index, ``index[axis] // divisor % extent``; extent None: the leading digit, no ``%``."""

    axis: int
    divisor: int
    extent: int | None

    def size(self, shape: Sequence[PrimExpr]) -> PrimExpr:
        """The number of values of the digit for a tensor of logical ``shape``."""
        return IntImm(self.extent) if self.extent is not None else ceildiv(shape[self.axis], self.divisor)


class IndexMap:
    """Maps the logical index of an element to the index at which it is stored.

        tiles = IndexMap.from_func(lambda n, k: (n // 16, k, n % 16))     # [N, K] -> [ceil(N / 16), K, 16]

    inputs: one variable per logical axis; outputs: the stored index in these variables. Maps that split axes into
    digits and reorder them have an inverse; axes whose size is not a multiple of their tile are padded. Maps are
    compared by their text.
    """

    __slots__ = ("__dict__", "inputs", "outputs")

    def __init__(self, inputs: Sequence[Var], outputs: Sequence[PrimExpr]):
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)

    @staticmethod
    def from_func(func: Callable[..., Sequence[ExprLike]]) -> IndexMap:
        """Return the map given by a Python function of the logical indices."""
        inputs = [Var(name) for name in inspect.signature(func).parameters]
        return IndexMap(inputs, [as_expr(o) for o in func(*inputs)])

    @staticmethod
    def parse(text: str) -> IndexMap:
        """Parse a text such as ``lambda i, j: (i // 16, j, i % 16)``. Raises IndexMapError for any other text."""
        try:
            tree = ast.parse(text, mode="eval").body
            assert isinstance(tree, ast.Lambda)
            inputs = {a.arg: Var(a.arg) for a in tree.args.args}
            body = tree.body.elts if isinstance(tree.body, ast.Tuple | ast.List) else [tree.body]
            return IndexMap(list(inputs.values()), [_expression(e, inputs) for e in body])
        except (SyntaxError, AssertionError, KeyError) as error:
            raise IndexMapError(f"got {text!r}; expected lambda i, j: (…) over + - * // % ^ and integers") from error

    @cached_property
    def text(self) -> str:
        """The map as a lambda with the variables ``i0, i1, …``."""
        names = {id(v): f"i{n}" for n, v in enumerate(self.inputs)}
        outputs = ", ".join(_text(o, names) for o in self.outputs)
        return f"lambda {', '.join(names.values())}: ({outputs}{',' if len(self.outputs) == 1 else ''})"

    def __repr__(self) -> str:
        return f"T.index_map({self.text})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IndexMap) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __call__(self, indices: Sequence[PrimExpr], analyzer: Analyzer | None = None) -> tuple[PrimExpr, ...]:
        """The stored index of a logical index. Raises IndexMapError for a wrong number of axes."""
        self._check_rank(len(indices))
        stored = substitute(self.outputs, dict(zip(self.inputs, indices, strict=True)))
        simplify = (analyzer or Analyzer()).simplify
        return tuple(simplify(o) for o in stored)

    def compose(self, after: IndexMap) -> IndexMap:
        """The composition: first this map, then ``after``."""
        return IndexMap(self.inputs, after(self.outputs))

    # -- layout -------------------------------------------------------------------------------------------------

    def digits(self, shape: Sequence[PrimExpr | int]) -> tuple[tuple[Digit, ...], ...]:
        """For each output its digits, the most significant first, for a tensor of logical ``shape``.

        Axes of constant size can be fused, as ``i * 16 + j``. Raises IndexMapError unless every digit of every input
        occurs exactly once.
        """
        self._check_rank(len(shape))
        sizes = tuple(_constant(size) for size in shape)
        if sizes not in self._known_digits:
            self._known_digits[sizes] = self._digits(sizes)
        return self._known_digits[sizes]

    @cached_property
    def _known_digits(self) -> dict[tuple[int | None, ...], tuple[tuple[Digit, ...], ...]]:
        return {}

    def _digits(self, sizes: Sequence[int | None]) -> tuple[tuple[Digit, ...], ...]:
        found = tuple(_digits(o, self.inputs, sizes) for o in self.outputs)
        if any(d is None for d in found) or not self._is_complete([d for ds in found for d in ds or ()]):
            raise IndexMapError(f"{self.text} has no inverse: expected every digit of every index just once")
        return tuple(ds or () for ds in found)

    def _is_complete(self, digits: Sequence[Digit]) -> bool:
        for axis in range(len(self.inputs)):
            divisor: int | None = 1
            for digit in sorted((d for d in digits if d.axis == axis), key=lambda d: d.divisor):
                if digit.divisor != divisor:
                    return False
                divisor = None if digit.extent is None else divisor * digit.extent
            if divisor is not None:
                return False
        return True

    def stored_shape(self, shape: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        """The shape in memory of a tensor of logical ``shape``, padding included."""
        simplify = Analyzer().simplify
        return tuple(simplify(_product([d.size(shape) for d in digits])) for digits in self.digits(shape))

    def inverse(self, shape: Sequence[PrimExpr]) -> IndexMap:
        """The map from stored to logical indices of a tensor of logical ``shape``; padding maps to indices outside."""
        stored = [Var(f"o{n}") for n in range(len(self.outputs))]
        logical: list[PrimExpr] = [const(0, "int64") for _ in self.inputs]
        for var, digits in zip(stored, self.digits(shape), strict=True):
            rest: PrimExpr = var
            for position, digit in enumerate(reversed(digits)):
                last = position == len(digits) - 1
                value = rest if last else rest % digit.size(shape)
                rest = rest if last else rest // digit.size(shape)
                logical[digit.axis] = logical[digit.axis] + value * digit.divisor
        simplify = Analyzer().simplify
        return IndexMap(stored, [simplify(e) for e in logical])

    def padded_axes(self, shape: Sequence[PrimExpr]) -> list[int]:
        """The logical axes of a tensor of logical ``shape`` that are padded, or may be where sizes are symbolic."""
        leading = (d for of_output in self.digits(shape) for d in of_output if d.extent is None)
        rest = {d.axis: Analyzer().simplify(shape[d.axis] % d.divisor) for d in leading}
        return sorted(axis for axis, left in rest.items() if not is_const(left, 0))

    def pack(self, array: np.ndarray, fill: float = 0) -> np.ndarray:
        """Return a contiguous copy of an array in this layout, padded with ``fill``."""
        flat = [d for digits in self.digits(array.shape) for d in digits]
        by_axis = [sorted((d for d in flat if d.axis == a), key=lambda d: -d.divisor) for a in range(array.ndim)]
        sizes = {d: d.extent or -(-array.shape[d.axis] // d.divisor) for d in flat}
        padding = [(0, prod(sizes[d] for d in axis) - n) for axis, n in zip(by_axis, array.shape, strict=True)]
        cut = np.pad(array, padding, constant_values=fill)
        order = [d for axis in by_axis for d in axis]
        stored = cut.reshape([sizes[d] for d in order]).transpose([order.index(d) for d in flat])
        shape = [prod(sizes[d] for d in of_output) for of_output in self.digits(array.shape)]
        return np.ascontiguousarray(stored.reshape(shape))

    def _check_rank(self, rank: int) -> None:
        if rank != len(self.inputs):
            raise IndexMapError(f"{self.text} is for {len(self.inputs)} axes; got {rank}")


def _product(sizes: Sequence[PrimExpr]) -> PrimExpr:
    total: PrimExpr = const(1, "int64")
    for size in sizes:
        total = total * size
    return total


# -- text ---------------------------------------------------------------------------------------------------------

_SPELLING = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%", ast.BitXor: "^"}
_PRECEDENCE = {"^": 1, "+": 2, "-": 2, "*": 3, "//": 3, "%": 3}


def _expression(node: ast.expr, inputs: Mapping[str, Var]) -> PrimExpr:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return const(node.value, "int64")
    if isinstance(node, ast.Name):
        return inputs[node.id]
    assert isinstance(node, ast.BinOp)
    return binary(_SPELLING[type(node.op)], _expression(node.left, inputs), _expression(node.right, inputs))


def _text(e: PrimExpr, names: Mapping[int, str], precedence: int = 0) -> str:
    """Print an expression as Python, parenthesized when its operator binds looser than ``precedence``."""
    if isinstance(e, IntImm):
        return str(e.value)
    if isinstance(e, Var):
        return names[id(e)]
    if not isinstance(e, BinaryOp) or e.op not in _PRECEDENCE:
        raise IndexMapError(f"an index map holds a {type(e).__name__}; expected + - * // % ^ over indices and integers")
    own = _PRECEDENCE[e.op]
    text = f"{_text(e.a, names, own)} {e.op} {_text(e.b, names, own + 1)}"
    return f"({text})" if own < precedence else text


# -- digits -------------------------------------------------------------------------------------------------------


def _digits(output: PrimExpr, inputs: Sequence[Var], sizes: Sequence[int | None]) -> tuple[Digit, ...] | None:
    """The digits of ``c0 * d0 + c1 * d1 + … + dn``, where every weight is the product of the extents after it.

    sizes: of the inputs; None where it is symbolic, so that no digit has a known weight before its leading one.
    """
    weight: int | None = 1
    found: list[Digit] = []
    for term, coefficient in sorted(_terms(output), key=lambda pair: pair[1]):
        digit = _digit(term, inputs)
        if digit is None or coefficient != weight:
            return None
        found.append(digit)
        size = digit.extent or _ceildiv(sizes[digit.axis], digit.divisor)
        weight = None if size is None else weight * size
    return tuple(reversed(found))


def _constant(size: PrimExpr | int) -> int | None:
    return size.value if isinstance(size, IntImm) else size if isinstance(size, int) else None


def _ceildiv(size: int | None, divisor: int) -> int | None:
    return None if size is None else -(-size // divisor)


def _terms(e: PrimExpr) -> list[tuple[PrimExpr, int]]:
    """The summands of a sum, each with its constant factor."""
    if isinstance(e, BinaryOp) and e.op == "+":
        return _terms(e.a) + _terms(e.b)
    if isinstance(e, BinaryOp) and e.op == "*" and isinstance(e.b, IntImm):
        return [(term, c * e.b.value) for term, c in _terms(e.a)]
    return [] if isinstance(e, IntImm) and e.value == 0 else [(e, 1)]


def _digit(atom: PrimExpr, inputs: Sequence[Var]) -> Digit | None:
    """The digit that ``//`` and ``%`` by constants select from an input; None for any other expression."""
    steps: list[tuple[str, int]] = []
    while isinstance(atom, BinaryOp) and atom.op in ("//", "%") and isinstance(atom.b, IntImm):
        steps.append((atom.op, atom.b.value))
        atom = atom.a
    axis = next((axis for axis, v in enumerate(inputs) if v is atom), None)
    digit = None if axis is None else Digit(axis, 1, None)
    for op, number in reversed(steps):
        digit = None if digit is None else _divided(digit, op, number)
    return digit


def _divided(digit: Digit, op: str, number: int) -> Digit | None:
    """``digit // number`` or ``digit % number``; None when the result is not a digit."""
    if digit.extent is not None and digit.extent % number:
        return None
    if op == "%":
        return Digit(digit.axis, digit.divisor, number)
    return Digit(digit.axis, digit.divisor * number, None if digit.extent is None else digit.extent // number)
