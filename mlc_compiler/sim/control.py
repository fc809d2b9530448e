"""Branches, returns, and instructions without effect in the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mlc_compiler.sim.decoder import AWAY, Decoder, Step, builds
from mlc_compiler.sim.errors import Fault
from mlc_compiler.sim.program import Instruction, Label, Vector
from mlc_compiler.sim.threads import Threads

Array = npt.NDArray[Any]


@builds("bra", control=True)
def branch(instruction: Instruction, decoder: Decoder) -> Step:
    (target,) = instruction.operands
    if not isinstance(target, Label):
        raise decoder.refuse(instruction, "a branch to no label")
    place = target.target
    return lambda m: place


@builds("brx", control=True)
def indexed_branch(instruction: Instruction, decoder: Decoder) -> Step:
    """``brx.idx index, labels`` (PTX ISA 9.7.12.3)."""
    index = decoder.source(instruction.operands[0], "u32")
    table = instruction.operands[1]
    if not isinstance(table, Vector):
        raise decoder.refuse(instruction, "a branch without its targets")
    targets = [label.target for label in table.items if isinstance(label, Label)]

    def step(m: Threads) -> int | None:
        active, chosen = m.active(), np.broadcast_to(index(m), m.size)
        beyond = active & (chosen >= len(targets))
        if beyond.any():
            lane = int(np.flatnonzero(beyond)[0])
            raise Fault(f"branch index {chosen[lane]}; expected less than {len(targets)}", lane)
        for number in np.unique(chosen[active]):
            m.push(targets[number], active & (chosen == number))
        return AWAY

    return step


@builds("ret", "exit", control=True)
def leave(instruction: Instruction, decoder: Decoder) -> Step:
    def step(m: Threads) -> int | None:
        m.retire()
        return AWAY

    return step


@builds("trap", control=True)
def trap(instruction: Instruction, decoder: Decoder) -> Step:
    def step(m: Threads) -> int | None:
        raise Fault("trap: the kernel stopped itself", int(m.lanes()[0]))

    return step


@builds("nanosleep", "prefetch", "prefetchu", "applypriority", "discard", "setmaxnreg", "pmevent")
def no_effect(instruction: Instruction, decoder: Decoder) -> Step:
    return lambda m: None
