"""Top-p sampling on a GPU: one thread block per row.

The threshold is found by the operator's bisection, two steps in a pass over the row; the token by sums of segments of
the row, then by prefix sums in one of them. Sums are in a fixed order, which is not the operator's: the token differs
from the operator's only where a sum of probabilities and its bound (``top_p``, or ``uniform`` times the sum of the set)
differ by no more than rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ....ir.expr import PrimExpr, Var, const
from ....relax.info import static_size
from ....relax.ops.sampling import HALVINGS
from ....relax.tensor_call import NoKernel
from ....script import expand
from ....target import Target
from ....tir import te
from ....tir.nodes import Buffer, buffer
from ..machine import WARP
from .nests import nest
from .sampling_loops import draw

WARPS = 32
VECTOR = 4  # float32 of a 16-byte load
STEPS = 2  # of the bisection in one pass, with three thresholds


def draw_top_p(probs: te.Tensor, top_p: te.Tensor, uniform: te.Tensor, *, target: Target) -> te.Tensor:
    """Kernel of the operator ``nn.sample_top_p``. Raises NoKernel for a vocabulary of symbolic size."""
    vocabulary = static_size(probs.shape[1])
    if vocabulary is None:
        raise NoKernel
    k = _Draw(probs.buffer, top_p.buffer, uniform.buffer, vocabulary)
    row, lane, warp = Var("row"), Var("lane"), Var("warp")
    body = nest(((row, probs.shape[0]),), ((lane, WARP), (warp, WARPS)), k.scratch, expand(draw, k, row, warp, lane))
    return te.extern([k.token], [probs, top_p, uniform], body)[0]


@dataclass(eq=False)
class _Draw:
    """Operands, sizes and buffers for the macros. A segment is the part of a row that belongs to one warp.

    Shared: parts [sums, warps]. Per thread: values [1, elements of a load]; sums [thresholds]; low, high [1]: bounds of
    the threshold; running [2]: sums before a token and before a segment; chosen, last [1]: tokens.
    """

    probs: Buffer
    top_p: Buffer
    uniform: Buffer
    vocabulary: int
    token: Buffer = field(init=False)

    def __post_init__(self) -> None:
        self.token = buffer("token", (self.probs.shape[0],), "int32")
        self.warps, self.thresholds = WARPS, 2**STEPS - 1
        self.vector = VECTOR if self.vocabulary % VECTOR == 0 else 1
        self.loads = -(-self.vocabulary // (WARPS * WARP * self.vector))
        self.segment = self.loads * WARP * self.vector
        self.passes = HALVINGS // STEPS
        self.parts = buffer("parts", (self.thresholds, WARPS), "float32", scope="shared")
        self.scratch = [self.parts]
        self.values = self._local("values", 1, self.vector)
        self.sums, self.other = self._local("sums", self.thresholds), self._local("other", 1)
        self.low, self.high = self._local("low", 1), self._local("high", 1)
        self.running = self._local("running", 2)
        self.chosen, self.last = (self._local(name, 1, dtype="int32") for name in ("chosen", "last"))

    def _local(self, name: str, *shape: int, dtype: str = "float32") -> Buffer:
        self.scratch.append(buffer(name, shape, dtype, scope="local"))
        return self.scratch[-1]

    def kept(self, p: PrimExpr, threshold: PrimExpr) -> PrimExpr:
        """A probability, or 0 below the threshold."""
        return te.select(p >= threshold, p, const(0.0, "float32"))

    def threshold(self, i: int) -> PrimExpr:
        """The thresholds of two bisection steps: those of the second step around that of the first."""
        low, high, half = self.low[0], self.high[0], const(0.5, "float32")
        middle = (low + high) * half
        return ((low + middle) * half, middle, (middle + high) * half)[i]
