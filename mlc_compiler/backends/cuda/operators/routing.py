"""Expert routing on a GPU: a warp for each token, whose lanes hold the scores of the experts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ....ir.expr import PrimExpr, Var, cast, const, minimum
from ....relax.info import static_size
from ....relax.ops.routing import SPARSEMIXER, TINIEST
from ....relax.tensor_call import NoKernel
from ....script import expand
from ....target import Target
from ....tir import te
from ....tir.nodes import Buffer, buffer
from ..machine import WARP
from .nests import nest
from .routing_loops import choose_experts

MAX_SCORES = 16  # of a lane, in registers


def route(
    logits: te.Tensor,
    correction: te.Tensor | None = None,
    *,
    target: Target,
    k: int,
    score: str,
    renormalize: bool,
    scale: float,
    groups: int,
    kept_groups: int,
    group_best: int,
    margin: float,
) -> list[te.Tensor]:
    """Kernel of the operator ``nn.route``. Raises NoKernel for SparseMixer, groups, and many experts or choices."""
    experts = static_size(logits.shape[1])
    if experts is None or experts > MAX_SCORES * WARP or k > WARP or kept_groups < groups or score == SPARSEMIXER:
        raise NoKernel
    inputs = [logits, *([] if correction is None else [correction])]
    own = None if correction is None else correction.buffer
    names = _Route(logits.buffer, own, experts, k, score == "softmax", renormalize, scale)
    token, lane = Var("token"), Var("lane")
    body = expand(choose_experts, names, token, lane)
    kernel = nest(((token, logits.shape[0]),), ((lane, WARP),), names.scratch, body)
    return list(te.extern([names.weights, names.experts], inputs, kernel))


@dataclass(eq=False)
class _Route:
    """Operands, sizes and registers of a lane for the macros.

    scores [experts of a lane]: scores. left [experts of a lane]: the scores to choose by, NaN for chosen experts. best,
    place: best of these and its expert. weight: score of the chosen expert. total: sum of the chosen scores.
    own_weight, own_expert: the choice that the lane stores.
    """

    logits: Buffer
    correction: Buffer | None
    count: int
    k: int
    is_softmax: bool
    renormalize: bool
    scale: float

    def __post_init__(self) -> None:
        shape = (self.logits.shape[0], self.k)
        self.weights, self.experts = buffer("weights", shape), buffer("experts", shape, "int32")
        self.held = -(-self.count // WARP)
        self.scratch: list[Buffer] = []
        self.scores, self.left = self._local("scores", self.held), self._local("left", self.held)
        self.best, self.other, self.weight = (self._local(name, 1) for name in ("best", "other", "weight"))
        self.total, self.own_weight = self._local("total", 1), self._local("own_weight", 1)
        self.place, self.chosen, self.own_expert = (
            self._local(name, 1, "int32") for name in ("place", "chosen", "own_expert")
        )

    def _local(self, name: str, size: int, dtype: str = "float32") -> Buffer:
        self.scratch.append(buffer(name, (size,), dtype, scope="local"))
        return self.scratch[-1]

    def expert(self, lane: PrimExpr, i: PrimExpr) -> PrimExpr:
        """The index of a lane's i-th expert."""
        return cast("int32", i * WARP + lane)

    def logit(self, token: PrimExpr, lane: PrimExpr, i: PrimExpr) -> PrimExpr:
        """A logit; minus infinity beyond the experts."""
        at = minimum(i * WARP + lane, self.count - 1)
        value = te.f32(self.logits[token, at])
        return value if self.count % WARP == 0 else te.select(self.is_expert(lane, i), value, te.f32(-math.inf))

    def is_expert(self, lane: PrimExpr, i: PrimExpr) -> PrimExpr:
        return i * WARP + lane < self.count

    def chosen_by(self, lane: PrimExpr, i: PrimExpr) -> PrimExpr:
        """The corrected score by which an expert is chosen; NaN, which is never chosen, beyond the experts."""
        value: PrimExpr = self.scores[i]
        if self.correction is not None:
            value = value + te.f32(self.correction[minimum(i * WARP + lane, self.count - 1)])
        return te.select(self.is_expert(lane, i), value, te.f32(math.nan))

    def result(self) -> PrimExpr:
        """The weight that a lane stores."""
        weight: PrimExpr = self.own_weight[0]
        if self.renormalize:
            weight = weight / (self.total[0] + TINIEST)
        return weight * self.scale

    @property
    def nothing(self) -> PrimExpr:
        """NaN, which replaces the score of a chosen expert: comparisons with it are false."""
        return const(math.nan, "float32")

    @property
    def lowest(self) -> PrimExpr:
        return const(-math.inf, "float32")

    @property
    def last(self) -> PrimExpr:
        return const(self.count - 1, "int32")
