"""Matmuls with quantized expert weights in integer arithmetic; ``matmuls.py`` has the formula."""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.visitor import walk
from ....relax.ops.linear import QUANTIZED
from ....schedules.experts import ExpertMatmulBlock, match_expert_matmul
from ....schedules.rule import analyse, constant_extent, stored_buffer
from ....tir.nodes import Block, Buffer, BufferLoad, PrimFunc
from ..machine import Cpu
from .plan import Plan, Weight

DIGITS = "expert_digits"
"""Attribute of functions that compute such matmuls in integers: the number of 8-bit digits of an activation."""


@dataclass(frozen=True)
class QuantizedExperts:
    """The dequantization of expert weights, and the matmul that is its only reader."""

    matched: ExpertMatmulBlock
    codes: Buffer
    scale: Buffer
    plan: Plan


def match_quantized_experts(func: PrimFunc, cpu: Cpu, digits: int) -> QuantizedExperts | None:
    """Match a quantized expert matmul; None for other functions, for one expert, or without a suitable instruction."""
    blocks = None if func.attrs.get("tir.is_scheduled") else analyse(func)
    made = [b for b in blocks.in_order if QUANTIZED in b.annotations] if blocks is not None else []
    if blocks is None or len(made) != 1 or len(blocks.reductions) != 1:
        return None
    matched = match_expert_matmul(blocks.reductions[0])
    if matched is None or matched.weight is not stored_buffer(made[0]):
        return None
    if matched.activation.dtype != "float32" or matched.weight.dtype != "float32":
        return None
    experts, columns, length = (constant_extent(size) for size in matched.weight.shape)
    operands = _operands(func, made[0])
    if experts is None or columns is None or length is None or operands is None:
        return None
    if experts == 1:  # the layouts of the weights are those of several matrices
        return None
    plan = Plan.of(Weight(columns, length, **made[0].annotations[QUANTIZED]), cpu, digits)
    return None if plan is None else QuantizedExperts(matched, *operands, plan)


def _operands(func: PrimFunc, dequantized: Block) -> tuple[Buffer, Buffer] | None:
    """The codes and the scales, which are parameters."""
    loads = {id(n.buffer): n.buffer for n in walk(dequantized.body) if isinstance(n, BufferLoad)}
    found = sorted(loads.values(), key=lambda b: b.dtype != "uint32")
    parameters = {id(b) for b in func.buffers}
    if [b.dtype == "uint32" for b in found] != [True, False] or any(id(b) not in parameters for b in found):
        return None
    return found[0], found[1]
