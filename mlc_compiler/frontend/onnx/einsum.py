"""ONNX's Einsum, as matmuls of operands whose axes are grouped."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from ...relax import ops
from ...relax.info import shape_of
from ...relax.nodes import Expr
from .. import blocks
from ..values import rank

DIGITS = "0123456789"
"""Labels of the axes of an ellipsis, the last one ``9``. Equations contain letters only."""


def einsum(*operands: Expr, equation: bytes) -> Expr:
    """``numpy.einsum(equation, *operands)`` with at most one axis of each label in an operand."""
    left, arrow, right = re.sub(r"\s", "", equation.decode()).partition("->")
    terms = [_spelled(t, rank(x)) for t, x in zip(left.split(","), operands, strict=True)]
    counts = {label: left.count(label) for label in sorted(set("".join(terms)))}
    if any(len(set(term)) < len(term) for term in terms):
        raise ValueError(f"equation {equation.decode()!r}: a label occurs twice in an operand; expected once")
    dots = "".join(sorted(label for label in counts if label in DIGITS))
    wanted = right.replace("...", dots) if arrow else dots + "".join(c for c in counts if counts[c] == 1)
    x, term = operands[0], terms[0]
    for n, (other, label) in enumerate(zip(operands[1:], terms[1:], strict=True), 2):
        needed = set(wanted).union(*terms[n:])
        x, term = _product(x, term, other, label, needed)
    return _arranged(*_reduced(x, term, set(wanted)), wanted)


def _spelled(term: str, axes: int) -> str:
    """A term with a label for each axis of an ellipsis."""
    count = axes - len(term.replace("...", ""))
    return term.replace("...", DIGITS[len(DIGITS) - count :])


def _reduced(x: Expr, term: str, needed: set[str]) -> tuple[Expr, str]:
    """Sum over the labels that nothing else needs."""
    axes = tuple(a for a, label in enumerate(term) if label not in needed)
    return (ops.sum(x, axis=axes) if axes else x), "".join(label for label in term if label in needed)


def _arranged(x: Expr, term: str, wanted: str) -> Expr:
    order = [term.index(label) for label in wanted]
    return x if order == sorted(order) else ops.permute_dims(x, axes=tuple(order))


def _product(x: Expr, a: str, y: Expr, b: str, needed: set[str]) -> tuple[Expr, str]:
    """The product of two operands, summed over the labels that both have and nothing else needs."""
    x, a = _reduced(x, a, needed | set(b))
    y, b = _reduced(y, b, needed | set(a))
    batch = [label for label in a if label in b and label in needed]
    inner = [label for label in a if label in b and label not in needed]
    rows, columns = [c for c in a if c not in b], [c for c in b if c not in a]
    left, right = _arranged(x, a, "".join(batch + rows + inner)), _arranged(y, b, "".join(batch + inner + columns))
    sizes = dict(zip(a, shape_of(x), strict=True)) | dict(zip(b, shape_of(y), strict=True))

    def grouped(v: Expr, *groups: Sequence[str]) -> Expr:
        return ops.reshape(v, (*(sizes[c] for c in batch), *(math.prod([sizes[c] for c in g]) for g in groups)))

    product = ops.matmul(grouped(left, rows, inner), grouped(right, inner, columns))
    shape = tuple(sizes[c] for c in batch + rows + columns)
    return blocks.reshape(product, shape), "".join(batch + rows + columns)
