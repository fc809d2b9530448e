"""Filters of sampling on a CPU: one thread per row, SIMD within a row."""

from __future__ import annotations

from dataclasses import dataclass, field

from ....ir.expr import PrimExpr, binary
from ....relax.info import static_size
from ....relax.ops import sampling_filters as filters
from ....relax.tensor_call import NoKernel
from ....script import expand
from ....target import Target
from ....tir import te
from ....tir.math.build import from_bits
from ....tir.nodes import Buffer, buffer
from ..machine import Cpu
from .filter_loops import filter_rows


def filter_probabilities(
    probs: te.Tensor,
    top_k: te.Tensor,
    top_p: te.Tensor,
    min_p: te.Tensor,
    typical_p: te.Tensor,
    *,
    target: Target,
) -> te.Tensor:
    """Kernel of the operator ``nn.filter_probabilities``. Raises NoKernel for a vocabulary of symbolic size."""
    vocabulary = static_size(probs.shape[1])
    if vocabulary is None:
        raise NoKernel
    inputs = [probs, top_k, top_p, min_p, typical_p]
    settings = (top_k.buffer, top_p.buffer, min_p.buffer, typical_p.buffer)
    kernel = _Filter(probs.buffer, *settings, vocabulary, Cpu.of(target).lanes(32))
    return te.extern([kernel.kept], inputs, expand(filter_rows, kernel))[0]


@dataclass(eq=False)
class _Filter:
    """Operands and sizes for the macros. The vocabulary is ``blocks`` whole vectors and ``tail`` more elements."""

    probs: Buffer
    top_k: Buffer
    top_p: Buffer
    min_p: Buffer
    typical_p: Buffer
    vocabulary: int
    lanes: int
    kept: Buffer = field(init=False)

    def __post_init__(self) -> None:
        self.rows = self.probs.shape[0]
        self.kept = buffer("kept", self.probs.shape, "float32")
        self.blocks, self.tail = divmod(self.vocabulary, self.lanes)

    def is_active(self, kind: PrimExpr, row: PrimExpr) -> PrimExpr:
        settings = (self.top_k, self.top_p, self.min_p, self.typical_p)
        return filters.is_active(kind, *(s[row] for s in settings))

    def is_searched(self, kind: PrimExpr, row: PrimExpr) -> PrimExpr:
        return filters.is_searched(kind, self.top_p[row])

    def wanted(self, kind: PrimExpr, row: PrimExpr, mass: PrimExpr) -> PrimExpr:
        return filters.wanted(kind, mass, self.top_k[row], self.top_p[row], self.typical_p[row])

    def threshold(self, kind: PrimExpr, row: PrimExpr, bits: PrimExpr, top: PrimExpr) -> PrimExpr:
        """The smallest key that a filter keeps; ``top``: the largest probability of the row."""
        share = te.select(binary("==", kind, filters.TOP_P), self.min_p[row] * top, 0.0)
        return te.max(from_bits(bits), share)

    def left(self, row: PrimExpr, j: PrimExpr) -> PrimExpr:
        """The probability of token j, or 0 where its key is 0."""
        return te.select(self.kept[row, j] > 0.0, self.probs[row, j], 0.0)

    def log_term(self, row: PrimExpr, j: PrimExpr) -> PrimExpr:
        """``p * log(p)`` of token j, 0 where p is 0."""
        p = self.left(row, j)
        return p * te.log(te.select(p > 0.0, p, 1.0))

    def above(self, kind: PrimExpr, row: PrimExpr, j: PrimExpr, threshold: PrimExpr) -> PrimExpr:
        """The weight of token j, or 0 where its key is below the threshold."""
        key = self.kept[row, j]
        return te.select(key >= threshold, filters.weight(kind, key, self.probs[row, j]), 0.0)

    def key_from(self, row: PrimExpr, j: PrimExpr, threshold: PrimExpr) -> PrimExpr:
        key = self.kept[row, j]
        return te.select(key >= threshold, key, 0.0)
