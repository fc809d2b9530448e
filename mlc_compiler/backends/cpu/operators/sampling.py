"""Top-p sampling on a CPU: one thread per row, SIMD within a row."""

from __future__ import annotations

from dataclasses import dataclass, field

from ....ir.expr import PrimExpr, const
from ....relax.info import static_size
from ....relax.ops.sampling import HALVINGS
from ....relax.tensor_call import NoKernel
from ....script import expand
from ....target import Target
from ....tir import te
from ....tir.nodes import Buffer, buffer
from ..machine import Cpu
from .sampling_loops import draw

CHUNK_VECTORS = 64  # vectors per chunk of the vocabulary; one chunk is searched token by token


def draw_top_p(probs: te.Tensor, top_p: te.Tensor, uniform: te.Tensor, *, target: Target) -> te.Tensor:
    """Kernel of the operator ``nn.sample_top_p``. Raises NoKernel for a vocabulary of symbolic size."""
    vocabulary = static_size(probs.shape[1])
    if vocabulary is None:
        raise NoKernel
    lanes = Cpu.of(target).lanes(32)
    kernel = _Draw(probs.buffer, top_p.buffer, uniform.buffer, probs.shape[0], vocabulary, lanes)
    return te.extern([kernel.token], [probs, top_p, uniform], expand(draw, kernel))[0]


@dataclass(eq=False)
class _Draw:
    """Operands and sizes for the macros. The vocabulary is ``blocks`` whole vectors and ``tail`` more elements."""

    probs: Buffer
    top_p: Buffer
    uniform: Buffer
    rows: PrimExpr
    vocabulary: int
    lanes: int
    token: Buffer = field(init=False)

    def __post_init__(self) -> None:
        self.token = buffer("token", (self.rows,), "int32")
        self.blocks, self.tail = divmod(self.vocabulary, self.lanes)
        self.chunk = CHUNK_VECTORS * self.lanes
        self.chunks = -(-self.vocabulary // self.chunk)
        self.chunk_vectors, self.halvings = CHUNK_VECTORS, HALVINGS

    def kept(self, row: PrimExpr, j: PrimExpr, threshold: PrimExpr) -> PrimExpr:
        """The probability of token j, or 0 below the threshold."""
        p = self.probs[row, j]
        return te.select(p >= threshold, p, const(0.0, "float32"))
