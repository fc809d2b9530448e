"""Rewrite matmuls with quantized weights to integer dot products; see ``quantized/matmuls.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....ir.module import IRModule
from ....ir.visitor import Substitute, walk
from ....passes.base import Pass
from ....passes.fuse_ops import NO_GATES, Gates
from ....relax.ops.linear import QUANTIZED
from ....schedules.rule import MatmulBlock, analyse, constant_extent, match_matmul, stored_buffer
from ....target import Target
from ....tir.nodes import Block, Buffer, BufferLoad, PrimFunc, Stmt
from ....tir.schedule.blocks import block_nest
from ....tir.schedule.tree import replace_stmts, root_of, with_allocs
from ..machine import Cpu
from ..quantized.experts import DIGITS, match_quantized_experts
from ..quantized.matmuls import integer_matmul
from ..quantized.plan import Plan, Weight

PLAN = "quantized_matmul"
DIGITS_OF_BITS = {8: 1, 16: 2}


@dataclass(frozen=True)
class QuantizedMatmuls(Pass):
    """Rewrite matmuls with group-quantized weights as sums of integer dot products.

    Needs: fused, unscheduled tensor functions whose dequantization has the attribute ``quantized``. Applies when the
    target has a dot product of bytes whose lanes divide the columns; marks rewritten functions with the attribute
    ``quantized_matmul``. Expert matmuls are only marked with ``expert_digits``: the schedule rule ``ExpertMatmul``
    builds their kernel. activation_bits: width of the quantized activations, 8 or 16; None disables
    the pass.
    """

    name = "quantized-matmuls"
    target: Target
    activation_bits: int | None = 8

    @property
    def gates(self) -> Gates:
        """The matmuls that the pass rewrites together with the gate, such as SwiGLU, that combines their halves."""
        return NO_GATES if self.activation_bits is None else Gates(frozenset({"float32"}), self._may_gate)

    def _may_gate(self, functions: Sequence[PrimFunc]) -> bool:
        made = [b for f in functions if (blocks := analyse(f)) for b in blocks.in_order if QUANTIZED in b.annotations]
        return len(made) == 1 and self._plan(made[0], 2) is not None

    def run(self, mod: IRModule) -> IRModule:
        if self.activation_bits is None:
            return mod
        return mod.updated({name: self._rewrite(f) for name, f in mod.of_type(PrimFunc).items()})

    def _rewrite(self, func: PrimFunc) -> PrimFunc:
        """Replace dequantization and matmul by the integer computation."""
        found = _match(func)
        plan = self._plan(found.dequantized, found.sides) if found is not None else None
        if found is None or plan is None:
            return self._of_experts(func)
        operands = (found.matmul.activation, found.codes, found.scale, stored_buffer(found.matmul.block))
        integer = integer_matmul(plan, *operands)
        body = Substitute(dict(zip(integer.buffers, operands, strict=True)))(root_of(integer).block.body)
        changes: dict[Stmt, Stmt | None] = {
            block_nest(func, found.dequantized.name): None,
            block_nest(func, found.matmul.block.name): body,
        }
        func = replace_stmts(func, changes)
        func = with_allocs(func, root_of(integer).block.alloc_buffers, drop=(stored_buffer(found.dequantized),))
        return func.with_attr(PLAN, _attribute(plan))

    def _of_experts(self, func: PrimFunc) -> PrimFunc:
        """Mark a function that computes a quantized expert matmul; return any other function unchanged."""
        digits = self._digits
        found = match_quantized_experts(func, Cpu.of(self.target), digits)
        return func if found is None else func.with_attr(DIGITS, digits)

    @property
    def _digits(self) -> int:
        assert self.activation_bits is not None
        return DIGITS_OF_BITS[self.activation_bits]

    def _plan(self, dequantized: Block, sides: int) -> Plan | None:
        """The plan of a matmul with the weight that a block dequantizes; None if it is no matrix or has no plan."""
        sizes = [constant_extent(size) for size in stored_buffer(dequantized).shape]
        match sizes:
            case [int(columns), int(length)]:
                weight = Weight(columns, length, **dequantized.annotations[QUANTIZED])
                return Plan.of(weight, Cpu.of(self.target), self._digits, sides)
        return None


@dataclass(frozen=True)
class _Match:
    dequantized: Block
    matmul: MatmulBlock
    codes: Buffer
    scale: Buffer
    sides: int  # as in ``Plan``


def _match(func: PrimFunc) -> _Match | None:
    """Match the dequantization and the matmul that is its only reader; None for any other function."""
    blocks = None if func.attrs.get("tir.is_scheduled") else analyse(func)
    dequantized = [b for b in blocks.in_order if QUANTIZED in b.annotations] if blocks is not None else []
    if blocks is None or len(dequantized) != 1:
        return None
    weight = stored_buffer(dequantized[0])
    readers = [b for b in blocks.in_order if any(r.buffer is weight for r in b.reads)]
    matmul = match_matmul(readers[0]) if len(readers) == 1 else None
    if matmul is None or matmul.transposed or not matmul.rows or matmul.weight is not weight:
        return None
    if matmul.activation.dtype != "float32" or weight.dtype != "float32" or len(weight.shape) != 2:
        return None
    loads = {id(n.buffer): n.buffer for n in walk(dequantized[0].body) if isinstance(n, BufferLoad)}
    codes = [b for b in loads.values() if b.dtype == "uint32"]
    scale = [b for b in loads.values() if b.dtype != "uint32"]
    parameters = {id(b) for b in func.buffers}
    if len(codes) != 1 or len(scale) != 1 or not {id(codes[0]), id(scale[0])} <= parameters:
        return None
    columns, width = (constant_extent(size) for size in (weight.shape[0], stored_buffer(blocks.in_order[-1]).shape[-1]))
    return _Match(dequantized[0], matmul, codes[0], scale[0], 2 if width is not None and width * 2 == columns else 1)


def _attribute(plan: Plan) -> dict[str, object]:
    """The fields of a plan that the schedule reads, as an attribute."""
    return {
        "dot": plan.dot.intrin.name,
        "columns": plan.columns,
        "rows": plan.rows,
        "rows_in_registers": plan.rows_in_registers,
        "layout": plan.weight.layout,
        "sides": plan.sides,
    }
