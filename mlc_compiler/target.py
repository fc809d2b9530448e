"""Targets: what the machine that runs the code can do.

``cpu`` is this machine; ``cpu:NAME`` a CPU that LLVM knows (``cpu:x86-64-v3``, ``cpu:znver4``, ``cpu:generic``).
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm

from mlc_errors import UnsupportedError


@dataclass(frozen=True)
class Target:
    """kind ``cpu``; LLVM's triple, CPU name and feature string; SIMD width in bits and number of SIMD registers.

    instruction_sets: those of the features that schedules ask for (``INSTRUCTION_SETS``).
    """

    kind: str
    triple: str
    cpu: str
    features: str
    vector_bits: int
    vector_registers: int
    instruction_sets: frozenset[str] = frozenset()

    def has(self, instruction_set: str) -> bool:
        """Whether the CPU has an instruction set, by LLVM's name of the feature."""
        return instruction_set in self.instruction_sets

    def lanes(self, dtype_bits: int = 32) -> int:
        """Elements of that width in one SIMD register."""
        return max(1, self.vector_bits // dtype_bits)

    def describe(self) -> dict[str, str | int]:
        """The fields that a library records about its target."""
        return {"kind": self.kind, "triple": self.triple, "cpu": self.cpu, "vector_bits": self.vector_bits}


INSTRUCTION_SETS = ("avx512f", "avx512vnni", "avx512bf16")
_FEATURES = {
    "x86-64-v4": frozenset({"avx512f"}),
    "skylake-avx512": frozenset({"avx512f"}),
    "icelake-server": frozenset({"avx512f", "avx512vnni"}),
    "sapphirerapids": frozenset({"avx512f", "avx512vnni", "avx512bf16"}),
    "znver4": frozenset({"avx512f", "avx512vnni", "avx512bf16"}),
    "znver5": frozenset({"avx512f", "avx512vnni", "avx512bf16"}),
}
_BASELINES = {
    "generic": (128, 16),
    "x86-64": (128, 16),
    "x86-64-v2": (128, 16),
    "x86-64-v3": (256, 16),
    "x86-64-v4": (512, 32),
    "haswell": (256, 16),
    "skylake": (256, 16),
    "skylake-avx512": (512, 32),
    "icelake-server": (512, 32),
    "sapphirerapids": (512, 32),
    "znver2": (256, 16),
    "znver3": (256, 16),
    "znver4": (512, 32),
    "znver5": (512, 32),
}


@cache
def initialize_llvm() -> None:
    """Make LLVM's back ends available; once in a process."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def target(name: str = "cpu") -> Target:
    """The target of that name. Raises UnsupportedError for a CPU that is not in the table."""
    kind, _, cpu = name.partition(":")
    if kind in ("auto", "llvm"):
        kind = "cpu"
    if kind != "cpu":
        raise UnsupportedError(f"no target {name!r}", hint="use cpu or cpu:NAME")
    if not cpu or cpu == "native":
        return host_target()
    if cpu not in _BASELINES:
        raise UnsupportedError(f"no CPU named {cpu!r}", hint=f"known: {', '.join(_BASELINES)}")
    bits, registers = _BASELINES[cpu]
    sets = frozenset(INSTRUCTION_SETS) & _FEATURES.get(cpu, frozenset())
    return Target("cpu", llvm.get_default_triple(), cpu, "", bits, registers, sets)


@cache
def host_target() -> Target:
    """This machine's CPU with all its features."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f") and features.get("avx512vl"):
        bits, registers = 512, 32
    elif features.get("avx2"):
        bits, registers = 256, 16
    else:
        bits, registers = 128, 32 if platform.machine() in ("aarch64", "arm64") else 16
    flat = features.flatten() + (",-prefer-256-bit" if bits == 512 else "")
    sets = frozenset(name for name in INSTRUCTION_SETS if features.get(name))
    return Target("cpu", llvm.get_default_triple(), llvm.get_host_cpu_name(), flat, bits, registers, sets)


def available_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
