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

    instruction_sets: the extensions that schedules and code generation ask for, by LLVM's names (``avx512vnni``).
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

    @property
    def arch(self) -> str:
        """The architecture: ``x86_64``, ``aarch64``."""
        return self.triple.partition("-")[0]

    def lanes(self, dtype_bits: int = 32) -> int:
        """Elements of that width in one SIMD register."""
        return max(1, self.vector_bits // dtype_bits)

    def describe(self) -> dict[str, str | int | list[str]]:
        """The fields that a library records about its target. A machine without the instruction sets refuses it."""
        return {
            "kind": self.kind,
            "triple": self.triple,
            "cpu": self.cpu,
            "vector_bits": self.vector_bits,
            "instruction_sets": sorted(self.instruction_sets),
        }


@dataclass(frozen=True)
class _Cpu:
    """A CPU by name: architecture, LLVM's name, SIMD width in bits, number of SIMD registers, extensions."""

    arch: str
    llvm_name: str
    bits: int
    registers: int
    instruction_sets: frozenset[str]


# Conversions of float16, fused multiply-add and rounding are baseline on AArch64; they go by x86's names.
_AARCH64 = frozenset({"f16c", "fma", "sse4.1"})


def _x86(name: str, bits: int, sets: str = "") -> _Cpu:
    return _Cpu("x86_64", name, bits, 32 if bits == 512 else 16, frozenset(sets.split()))


def _arm(name: str, sets: str = "") -> _Cpu:
    return _Cpu("aarch64", name, 128, 32, _AARCH64 | set(sets.split()))


_V2 = "sse4.1"
_V3 = f"{_V2} avx2 fma f16c"
_V4 = f"{_V3} avx512f avx512bw avx512cd avx512dq avx512vl"
_VNNI = f"{_V4} avx512vnni"
_ICELAKE = f"{_VNNI} avx512ifma avx512vbmi avx512vbmi2 avx512bitalg avx512vpopcntdq gfni"

_CPUS = {
    "x86-64": _x86("x86-64", 128),
    "x86-64-v2": _x86("x86-64-v2", 128, _V2),
    "x86-64-v3": _x86("x86-64-v3", 256, _V3),
    "x86-64-v4": _x86("x86-64-v4", 512, _V4),
    "haswell": _x86("haswell", 256, _V3),
    "skylake": _x86("skylake", 256, _V3),
    "skylake-avx512": _x86("skylake-avx512", 512, _V4),
    "cascadelake": _x86("cascadelake", 512, _VNNI),
    "icelake-server": _x86("icelake-server", 512, _ICELAKE),
    "sapphirerapids": _x86("sapphirerapids", 512, f"{_ICELAKE} avx512bf16 avx512fp16 avxvnni"),
    "znver2": _x86("znver2", 256, _V3),
    "znver3": _x86("znver3", 256, _V3),
    "znver4": _x86("znver4", 512, f"{_ICELAKE} avx512bf16"),
    "znver5": _x86("znver5", 512, f"{_ICELAKE} avx512bf16 avxvnni"),
    "aarch64": _arm("generic"),
    "cortex-a76": _arm("cortex-a76", "dotprod"),
    "neoverse-n1": _arm("neoverse-n1", "dotprod"),
    "neoverse-v1": _arm("neoverse-v1", "dotprod i8mm bf16"),
    "apple-m1": _arm("apple-m1", "dotprod"),
}


def target(name: str = "cpu") -> Target:
    """The target of that name. Raises UnsupportedError for a CPU that is not in the table."""
    kind, _, cpu = name.partition(":")
    if kind in ("auto", "llvm"):
        kind = "cpu"
    if kind != "cpu":
        raise UnsupportedError(f"no target {name!r}", hint="use cpu or cpu:NAME")
    if not cpu or cpu == "native":
        return host_target()
    if cpu == "generic":
        cpu = "aarch64" if host_arch() == "aarch64" else "x86-64"
    if cpu not in _CPUS:
        raise UnsupportedError(f"no CPU named {cpu!r}", hint=f"known: generic, {', '.join(_CPUS)}")
    row = _CPUS[cpu]
    features = "-prefer-256-bit" if row.bits == 512 else ""
    return Target("cpu", _triple(row.arch), row.llvm_name, features, row.bits, row.registers, row.instruction_sets)


def host_arch() -> str:
    """This machine's architecture, as LLVM names it: ``x86_64``, ``aarch64``."""
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


def _triple(arch: str) -> str:
    return llvm.get_default_triple() if arch == host_arch() else f"{arch}-unknown-linux-gnu"


@cache
def host_target() -> Target:
    """This machine's CPU with all its features."""
    features = llvm.get_host_cpu_features()
    present = frozenset(name for name, has in features.items() if has)
    if host_arch() == "aarch64":
        bits, registers, present = 128, 32, present | _AARCH64
    elif "avx512f" in present and "avx512vl" in present:
        bits, registers = 512, 32
    else:
        bits, registers = 256 if "avx2" in present else 128, 16
    flat = features.flatten() + (",-prefer-256-bit" if bits == 512 else "")
    return Target("cpu", llvm.get_default_triple(), llvm.get_host_cpu_name(), flat, bits, registers, present)


def available_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
