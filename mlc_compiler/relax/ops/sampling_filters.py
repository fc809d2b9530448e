"""The operator that removes improbable tokens from a distribution: top-k, top-p, min-p, typical-p."""

from __future__ import annotations

from collections.abc import Callable

from ...ir.expr import INDEX_DTYPE, PrimExpr, Var, binary, const, logical_or
from ...tir import nodes as tir
from ...tir import te
from ...tir.math.build import from_bits
from ...tir.nodes import BufferStore, For, IfThenElse, seq
from .registry import operator

TOP_K, TOP_P, TYPICAL_P = range(3)
FILTERS = 3
ABOVE_ONE = 0x3F900000
"""The bits of a float32 above all keys (at most 1, up to rounding); nonnegative floats order like their bits."""
BITS = 30
"""Bisection steps that reduce ``ABOVE_ONE`` possible thresholds to one."""


@operator("nn.filter_probabilities")
def filter_probabilities(
    probs: te.Tensor, top_k: te.Tensor, top_p: te.Tensor, min_p: te.Tensor, typical_p: te.Tensor
) -> te.Tensor:
    """``probs`` with 0 for the tokens that any of four filters drops; float32 [n, V], not renormalized.

    probs: float32 [n, V], whose rows sum to 1; top_k: int32 [n]; others float32 [n]. The filters apply one after the
    other, as in transformers, each to the remaining tokens with renormalized probabilities:

    top_k: keeps the k most probable tokens and ties with the last of them; below 1: all.
    top_p: keeps the smallest set of most probable tokens with that sum (Holtzman et al. 2020); 1 or more: all.
    min_p: keeps tokens with at least that fraction of the greatest probability (Nguyen et al. 2024); 0: all.
    typical_p: keeps the smallest set of tokens with that sum whose ``-log p`` is nearest to the entropy (Meister et al.
    2023); 1 or more: all.
    """
    n, vocabulary = probs.shape
    kept = tir.buffer("kept", (n, vocabulary), "float32")
    inputs = [probs, top_k, top_p, min_p, typical_p]
    rows = _Rows(probs, kept, top_k, top_p, min_p, typical_p)
    return te.extern([kept], inputs, te.each((n,), "filter_probabilities", rows.filtered, rows.cells))[0]


def is_active(kind: PrimExpr, top_k: PrimExpr, top_p: PrimExpr, min_p: PrimExpr, typical_p: PrimExpr) -> PrimExpr:
    """Whether filter ``kind`` drops any token; min_p is applied together with ``TOP_P``."""
    by_mass = te.select(binary("==", kind, TOP_P), logical_or(top_p < 1.0, min_p > 0.0), typical_p < 1.0)
    return te.select(binary("==", kind, TOP_K), top_k > 0, by_mass)


def is_searched(kind: PrimExpr, top_p: PrimExpr) -> PrimExpr:
    """Whether an active filter's threshold is found by bisection, rather than given by min_p alone."""
    return logical_or(binary("!=", kind, TOP_P), top_p < 1.0)


def wanted(kind: PrimExpr, mass: PrimExpr, top_k: PrimExpr, top_p: PrimExpr, typical_p: PrimExpr) -> PrimExpr:
    """The minimum sum of weights that a filter keeps; ``mass``: the total probability of the remaining tokens."""
    share = te.select(binary("==", kind, TOP_P), top_p, typical_p)
    return te.select(binary("==", kind, TOP_K), te.f32(top_k), share * mass)


def weight(kind: PrimExpr, key: PrimExpr, p: PrimExpr) -> PrimExpr:
    """The weight of a token: 1 for top_k, else its probability while it remains (its key is above 0)."""
    return te.select(binary("==", kind, TOP_K), 1.0, te.select(key > 0.0, p, 0.0))


def typicality(key: PrimExpr, p: PrimExpr, mean_log: PrimExpr) -> PrimExpr:
    """The key of ``TYPICAL_P``, in (0, 1]: largest where ``log p`` is ``mean_log``, that of the remaining tokens."""
    distance = te.abs(te.log(te.select(key > 0.0, p, 1.0)) - mean_log)
    return te.select(key > 0.0, 1.0 / (1.0 + distance), 0.0)


class _Rows:
    """Builds the statements for a row; until the last step, ``kept`` holds the keys compared with thresholds."""

    def __init__(self, probs: te.Tensor, kept: tir.Buffer, *settings: te.Tensor):
        self.probs, self.kept, self.settings = probs, kept, settings
        self.low, self.high, self.middle = (te.Cell(name, "int32") for name in ("low", "high", "middle"))
        self.top, self.mass, self.logs = (te.Cell(name, "float32") for name in ("top", "mass", "logs"))
        cells = (self.low, self.high, self.middle, self.top, self.mass, self.logs)
        self.cells = [cell.buffer for cell in cells]

    def filtered(self, i: Var) -> tir.Stmt:
        kind = Var("kind")
        active = is_active(kind, *(s[i] for s in self.settings))
        return seq(
            self.top.set(0.0),
            self._each(lambda j: seq(self._store(i, j, self.probs[i, j]), self._raise(self.probs[i, j]))),
            For(kind, const(FILTERS, INDEX_DTYPE), IfThenElse(active, self._apply(i, kind))),
            self._each(lambda j: self._store(i, j, te.select(self.kept[i, j] > 0.0, self.probs[i, j], 0.0))),
        )

    def _apply(self, i: Var, kind: Var) -> tir.Stmt:
        top_k, top_p, min_p, typical_p = (s[i] for s in self.settings)
        share = te.select(binary("==", kind, TOP_P), min_p * self.top.value, 0.0)

        def keep(j: Var) -> tir.Stmt:
            threshold = te.max(from_bits(self.low.value), share)
            return self._store(i, j, te.select(self.kept[i, j] >= threshold, self.kept[i, j], 0.0))

        return seq(
            self._measure(i),
            IfThenElse(binary("==", kind, TYPICAL_P), self._each(lambda j: self._typical(i, j))),
            self._search(i, kind, wanted(kind, self.mass.value, top_k, top_p, typical_p), is_searched(kind, top_p)),
            self._each(keep),
        )

    def _measure(self, i: Var) -> tir.Stmt:
        """Set ``mass`` to the sum of p over the remaining tokens, and ``logs`` to the sum of ``p * log p``."""

        def add(j: Var) -> tir.Stmt:
            left = te.select(self.kept[i, j] > 0.0, self.probs[i, j], 0.0)
            log = te.log(te.select(left > 0.0, left, 1.0))
            return seq(self.mass.set(self.mass.value + left), self.logs.set(self.logs.value + left * log))

        return seq(self.mass.set(0.0), self.logs.set(0.0), self._each(add))

    def _typical(self, i: Var, j: Var) -> tir.Stmt:
        mean_log = self.logs.value / self.mass.value
        return self._store(i, j, typicality(self.kept[i, j], self.probs[i, j], mean_log))

    def _search(self, i: Var, kind: Var, target: PrimExpr, searched: PrimExpr) -> tir.Stmt:
        """Set ``low`` to the bits of the greatest threshold at which the kept tokens weigh ``target``, or to 0."""
        found = te.Cell("found", "float32")
        self.cells.append(found.buffer)

        def add(j: Var) -> tir.Stmt:
            key = self.kept[i, j]
            above = te.select(key >= from_bits(self.middle.value), weight(kind, key, self.probs[i, j]), 0.0)
            return found.set(found.value + above)

        halve = seq(
            self.middle.set((self.low.value + self.high.value) >> 1),
            found.set(0.0),
            self._each(add),
            IfThenElse(found.value >= target, self.low.set(self.middle.value), self.high.set(self.middle.value)),
        )
        steps = te.select(searched, const(BITS, INDEX_DTYPE), const(0, INDEX_DTYPE))
        return seq(self.low.set(0), self.high.set(ABOVE_ONE), For(Var("step"), steps, halve))

    def _each(self, body: Callable[[Var], tir.Stmt]) -> tir.Stmt:
        j = Var("j")
        return For(j, self.probs.shape[1], body(j))

    def _store(self, i: Var, j: Var, value: PrimExpr) -> tir.Stmt:
        return BufferStore(self.kept, value, (i, j))

    def _raise(self, p: PrimExpr) -> tir.Stmt:
        return self.top.set(te.max(self.top.value, p))
