"""Multi-word addition: ``add.cc``, ``addc``, ``sub.cc``, ``subc`` (PTX ISA 9.7.2), which LLVM emits for 128 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mlc_compiler.sim.decoder import Decoder, Step, builds
from mlc_compiler.sim.program import BITS, Instruction
from mlc_compiler.sim.threads import Threads

Array = npt.NDArray[Any]


def carry_step(instruction: Instruction, decoder: Decoder) -> Step:
    """An addition or subtraction that sets or uses each thread's carry (the borrow, for subtraction)."""
    decoder.allow(instruction, "cc")
    name, kind = instruction.opcode[0], f"u{BITS[instruction.type]}"
    a, b = (decoder.source(operand, kind) for operand in instruction.operands[1:])
    destination = decoder.destination(instruction.operands[0])
    subtract, takes, sets = name.startswith("sub"), name.endswith("c"), instruction.has("cc")

    def step(m: Threads) -> int | None:
        left, right = np.broadcast_arrays(a(m), b(m))
        carry = (m.carry if takes else np.zeros(1, bool)).astype(left.dtype)
        first = left - right if subtract else left + right
        total = first - carry if subtract else first + carry
        destination(m, total)
        if sets:
            over = (left < right) | (first < carry) if subtract else (first < left) | (total < first)
            m.carry = over if m.whole else np.where(m.active(), over, m.carry)
        return None

    return step


@builds("addc", "subc")
def with_carry(instruction: Instruction, decoder: Decoder) -> Step:
    return carry_step(instruction, decoder)
