"""CPU targets: the table of CPUs by name, detection of this machine, and the sizes that schedules use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from mlc_errors import UnsupportedError

from ...target import CAPABILITIES, Attribute, Target, TargetKind, host_arch

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
KIB = 1 << 10
VECTOR_WIDTHS = (128, 256, 512)


@dataclass(frozen=True)
class NamedCpu:
    """A row of the table: architecture, LLVM's name, LLVM's names of extensions, L1d and L2 cache in KiB per core."""

    arch: str
    llvm_name: str
    isa: frozenset[str]
    l1_kib: int
    l2_kib: int


def _x86(name: str, isa: str, l1: int, l2: int) -> NamedCpu:
    return NamedCpu("x86_64", name, frozenset(isa.split()), l1, l2)


def _arm(name: str, isa: str, l1: int, l2: int) -> NamedCpu:
    return NamedCpu("aarch64", name, frozenset(isa.split()), l1, l2)


_V2 = "sse4.1"
_V3 = f"{_V2} avx2 fma f16c"
_V4 = f"{_V3} avx512f avx512bw avx512cd avx512dq avx512vl"
_VNNI = f"{_V4} avx512vnni"
_ICELAKE = f"{_VNNI} avx512ifma avx512vbmi avx512vbmi2 avx512bitalg avx512vpopcntdq gfni"

CPUS = {
    "x86-64": _x86("x86-64", "", 32, 256),
    "x86-64-v2": _x86("x86-64-v2", _V2, 32, 256),
    "x86-64-v3": _x86("x86-64-v3", _V3, 32, 256),
    "x86-64-v4": _x86("x86-64-v4", _V4, 32, 1024),
    "haswell": _x86("haswell", _V3, 32, 256),
    "skylake": _x86("skylake", _V3, 32, 256),
    "alderlake": _x86("alderlake", f"{_V3} avxvnni gfni", 48, 1280),
    "skylake-avx512": _x86("skylake-avx512", _V4, 32, 1024),
    "cascadelake": _x86("cascadelake", _VNNI, 32, 1024),
    "icelake-server": _x86("icelake-server", _ICELAKE, 48, 1280),
    "sapphirerapids": _x86("sapphirerapids", f"{_ICELAKE} avx512bf16 avx512fp16 avxvnni", 48, 2048),
    "znver2": _x86("znver2", _V3, 32, 512),
    "znver3": _x86("znver3", _V3, 32, 512),
    "znver4": _x86("znver4", f"{_ICELAKE} avx512bf16", 32, 1024),
    "znver5": _x86("znver5", f"{_ICELAKE} avx512bf16 avxvnni", 48, 1024),
    "aarch64": _arm("generic", "", 32, 256),
    "cortex-a76": _arm("cortex-a76", "dotprod", 64, 256),
    "neoverse-n1": _arm("neoverse-n1", "dotprod", 64, 1024),
    "neoverse-v1": _arm("neoverse-v1", "dotprod i8mm bf16 sve", 64, 1024),
    "apple-m1": _arm("apple-m1", "dotprod", 128, 3072),
}


@dataclass(frozen=True)
class Cpu:
    """The parameters of a CPU that schedules and lowerings depend on.

    vector_bits, vector_registers: width and number of SIMD registers. l1_bytes, l2_bytes: data caches of one core. isa:
    the extensions that generated code may use, by LLVM's names (``avx512vnni``, ``dotprod``). cores: the cores that
    loops are divided over, ``num-cores`` of the target; 1 if it does not name them.
    """

    arch: str
    vector_bits: int
    vector_registers: int
    l1_bytes: int
    l2_bytes: int
    isa: frozenset[str]
    cores: int = 1

    @staticmethod
    def of(target: Target) -> Cpu:
        """The CPU of a target."""
        return _cpu_of(target)

    def has(self, extension: str) -> bool:
        """Whether the CPU has an extension, by LLVM's name."""
        return extension in self.isa

    def lanes(self, dtype_bits: int = 32) -> int:
        """The number of elements of ``dtype_bits`` bits in one SIMD register, at least 1."""
        return max(1, self.vector_bits // dtype_bits)


@cache
def _cpu_of(target: Target) -> Cpu:
    a = target.attrs
    bits, registers, l1, l2 = (int(str(a[n])) for n in ("vector-width", "vector-registers", "l1-bytes", "l2-bytes"))
    isa = a["isa"]
    assert isinstance(isa, tuple)
    return Cpu(target.arch, bits, registers, l1, l2, frozenset(isa), int(str(a.get("num-cores", 1))))


# -- attributes ---------------------------------------------------------------------------------------------------

OPTIONS: Mapping[str, type] = {
    "mcpu": str,
    "mtriple": str,
    "mattr": str,
    "num-cores": int,
    "vector-width": int,
    "vector-registers": int,
    "l1-bytes": int,
    "l2-bytes": int,
    "isa": tuple,
}


def complete(given: Mapping[str, Any]) -> Mapping[str, Attribute]:
    """All attributes of a CPU target: those given, and the rest from the table or from this machine.

    Raises UnsupportedError for a CPU that is not in the table or an unknown extension, unless ``isa`` is given, and
    for systems other than Linux with the GNU C library.
    """
    _check(given)
    found = _attributes(given)
    features = _joined(str(found["mattr"]), str(given.get("mattr", "")))
    isa = _with_features(found["isa"], str(given.get("mattr", "")))
    arch = str(found["mtriple"]).partition("-")[0]
    if "isa" not in given:
        _check_features(arch, str(given.get("mattr", "")))
    width, registers = _simd(arch, isa)
    result: dict[str, Attribute] = {**found, "vector-width": width, "vector-registers": registers}
    result |= {name: value for name, value in given.items() if name not in ("mcpu", "mattr", "isa")}
    prefer = f"{'-' if result['vector-width'] == 512 else '+'}prefer-256-bit" if "avx512f" in isa else ""
    return {**result, "mattr": _joined(features, prefer), "isa": tuple(sorted(isa))}


def _check(given: Mapping[str, Any]) -> None:
    """Raise UnsupportedError for an unsupported system or SIMD width."""
    arch, *system = str(given.get("mtriple", "x86_64-linux-gnu")).split("-")
    known = sorted({row.arch for row in CPUS.values()})
    if arch not in known or "linux" not in system or system[-1] not in ("linux", "gnu"):
        hint = f"known: {', '.join(f'{name}-linux-gnu' for name in known)}"
        raise UnsupportedError(f"target cpu: mtriple is {given['mtriple']!r}", hint=hint)
    if given.get("vector-width", VECTOR_WIDTHS[0]) not in VECTOR_WIDTHS:
        hint = f"known: {', '.join(map(str, VECTOR_WIDTHS))}"
        raise UnsupportedError(f"target cpu: vector-width is {given['vector-width']}", hint=hint)


def _check_features(arch: str, features: str) -> None:
    """Raise UnsupportedError for a word of ``mattr`` other than + or - and an extension of the architecture."""
    known = {name for row in CPUS.values() if row.arch == arch for name in row.isa}
    if arch == host_arch():
        known |= set(llvm.get_host_cpu_features())
    for word in filter(None, (w.strip() for w in features.split(","))):
        if word[0] not in "+-" or word[1:] not in known:
            hint = f"known, each after + or -: {', '.join(sorted(known))}"
            raise UnsupportedError(f"target cpu: mattr has {word!r}", hint=hint)


def _attributes(given: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of the named CPU, of the named architecture, or of this machine."""
    arch = str(given.get("mtriple", host_arch())).partition("-")[0]
    name = given.get("mcpu")
    if "isa" in given:
        sizes = {"l1-bytes": 32 * KIB, "l2-bytes": 256 * KIB}
        names = {"mcpu": name or "generic", "mtriple": _triple(arch), "mattr": ""}
        return {**names, "isa": frozenset(given["isa"]), **sizes}
    if name is None and arch == host_arch():
        return dict(_this_machine())
    if name in (None, "generic"):
        name = {"x86_64": "x86-64"}.get(arch, arch)
    if name not in CPUS:
        raise UnsupportedError(f"target cpu: mcpu is {name!r}", hint=f"known: generic, {', '.join(CPUS)}")
    row = CPUS[name]
    if "mtriple" in given and arch != row.arch:
        raise UnsupportedError(f"target cpu: mcpu {name} is {row.arch}; mtriple is {given['mtriple']}")
    sizes = {"l1-bytes": row.l1_kib * KIB, "l2-bytes": row.l2_kib * KIB}
    return {"mcpu": row.llvm_name, "mtriple": _triple(row.arch), "mattr": "", "isa": row.isa, **sizes}


def _joined(*features: str) -> str:
    """Concatenate feature strings, without duplicates."""
    return ",".join(dict.fromkeys(f.strip() for text in features for f in text.split(",") if f.strip()))


def _with_features(isa: frozenset[str], features: str) -> frozenset[str]:
    """``isa`` with the ``+name`` of a feature string added and its ``-name`` removed."""
    words = [w.strip() for w in features.split(",") if w.strip()]
    known = {name for row in CPUS.values() for name in row.isa}
    added = {w[1:] for w in words if w.startswith("+")} & known
    return isa.union(added).difference(w[1:] for w in words if w.startswith("-"))


def _simd(arch: str, isa: frozenset[str]) -> tuple[int, int]:
    """Bits and number of SIMD registers."""
    if arch == "aarch64":
        return 128, 32
    if {"avx512f", "avx512vl"} <= isa:
        return 512, 32
    return (256 if "avx2" in isa else 128), 16


def _triple(arch: str) -> str:
    return llvm.get_default_triple() if arch == host_arch() else f"{arch}-unknown-linux-gnu"


@cache
def _this_machine() -> Mapping[str, Any]:
    features = llvm.get_host_cpu_features()
    name = llvm.get_host_cpu_name()
    row = CPUS.get(name, CPUS["x86-64"])
    return {
        "mcpu": name,
        "mtriple": llvm.get_default_triple(),
        "mattr": features.flatten(),
        "isa": frozenset(name for name, has in features.items() if has),
        "l1-bytes": _cache_bytes(1) or row.l1_kib * KIB,
        "l2-bytes": _cache_bytes(2) or row.l2_kib * KIB,
    }


def _cache_bytes(level: int) -> int | None:
    """Bytes of the data cache of a level of core 0, from sysfs; None when it is not listed."""
    for index in sorted(CACHES.glob("index*")):
        try:
            kind, found, size = ((index / name).read_text().strip() for name in ("type", "level", "size"))
        except OSError:
            continue
        if kind != "Instruction" and found == str(level) and size.endswith("K"):
            return int(size[:-1]) * KIB
    return None


def _has(target: Target, name: str) -> bool:
    if name in CAPABILITIES:
        return target.arch == "aarch64" or Cpu.of(target).has(_X86_CAPABILITIES[name])  # in AArch64's base set
    return Cpu.of(target).has(name)


_X86_CAPABILITIES = {"convert_float16": "f16c", "fma": "fma", "round": "sse4.1"}
CPU_KIND = TargetKind("cpu", ("auto", "llvm"), OPTIONS, complete, "mcpu", _has)
