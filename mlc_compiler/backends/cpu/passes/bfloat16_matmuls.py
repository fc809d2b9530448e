"""Round the activations of matmuls with bfloat16 weights, which CPUs with AVX-512 BF16 multiply in pairs."""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.expr import PrimExpr, cast, is_const
from ....ir.visitor import Rewriter, Substitute, walk
from ....passes.base import FunctionPass
from ....schedules.rule import MatmulBlock, analyse, constant_extent, single_matmul
from ....target import Target
from ....tir import te
from ....tir.nodes import Buffer, BufferLoad, PrimFunc, seq
from ....tir.schedule.blocks import block_nest
from ....tir.schedule.tree import replace_stmts, root_of, unique_block_name, unique_buffer_name, with_allocs
from ..instructions.bfloat16 import DOT2_PAIRS, LANES
from ..machine import Cpu


@dataclass(frozen=True)
class Bfloat16Matmuls(FunctionPass):
    """Round float32 activations to bfloat16 where they are multiplied with a bfloat16 weight; sums stay float32.

    Needs: fused, unscheduled tensor functions with the attribute ``activations``. Applies when the target multiplies
    pairs of bfloat16 numbers and the weight [N, K] has an even K and whole vectors of columns. The weights do not
    change.
    """

    name = "bfloat16-matmuls"
    target: Target

    def function(self, func: PrimFunc, name: str) -> PrimFunc:
        matched = None if func.attrs.get("tir.is_scheduled") else match_pairs(func, Cpu.of(self.target))
        if matched is None or matched.activation.dtype != "float32" or not _reads_each_row(matched):
            return func
        rounding = _rounding(matched.activation, unique_buffer_name(func, unique_block_name(func, "rounded")))
        rounded = rounding.buffers[-1]
        body = Substitute({rounding.buffers[0]: matched.activation})(root_of(rounding).block.body)
        nest = block_nest(func, matched.block.name)
        func = replace_stmts(func, {nest: seq(body, _ReadRounded(matched.activation, rounded)(nest))})
        return with_allocs(func, (rounded,))


def match_pairs(func: PrimFunc, cpu: Cpu) -> MatmulBlock | None:
    """Match a matmul with a stored bfloat16 weight that the CPU can multiply in pairs; None for any other function."""
    blocks = analyse(func) if cpu.has(DOT2_PAIRS.requires) else None
    matched = single_matmul(blocks) if blocks is not None else None
    if matched is None or matched.transposed or not matched.rows:
        return None
    activations = {id(func.buffers[i]) for i in func.attrs.get("activations", ())}
    stored = any(b is matched.weight and id(b) not in activations for b in func.buffers)
    if not stored or matched.weight.dtype != "bfloat16":
        return None
    columns, length = (constant_extent(size) for size in matched.weight.shape)
    whole = columns is not None and length is not None and columns % LANES == 0 and length % 2 == 0
    return matched if whole else None


def _reads_each_row(matched: MatmulBlock) -> bool:
    """Whether the rows of the matmul are those of the activation, so that no other rows are rounded."""
    loads = (n for n in walk(matched.block.body) if isinstance(n, BufferLoad) and n.buffer is matched.activation)
    indices = [index for load in loads for index in load.indices[:-1]]
    return all(any(index is row for row in matched.rows) or is_const(index, 0) for index in indices)


def _rounding(activation: Buffer, name: str) -> PrimFunc:
    x = te.placeholder(activation.shape, activation.dtype, activation.name)
    return te.create_prim_func([x, te.compute(x.shape, lambda *i: te.cast(x[i], "bfloat16"), name=name)])


@dataclass
class _ReadRounded(Rewriter):
    """Replaces loads of ``source`` by loads of ``rounded``, cast back to the dtype of ``source``."""

    source: Buffer
    rounded: Buffer

    def rewrite_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        if node.buffer is not self.source:
            return self.rewrite_children(node)
        return cast(self.source.dtype, BufferLoad(self.rounded, self(node.indices)))

    def rewrite_Buffer(self, node: Buffer) -> Buffer:
        return self.rounded if node is self.source else node
