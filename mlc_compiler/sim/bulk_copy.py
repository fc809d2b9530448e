"""``cp.async.bulk``."""

from __future__ import annotations

from mlc_compiler.sim.decoder import Decoder, Step
from mlc_compiler.sim.program import Instruction


def bulk_copy(instruction: Instruction, decoder: Decoder) -> Step:
    raise decoder.refuse(instruction)
