"""CUDA targets: the table of GPU architectures, detection of the GPU, and the sizes that schedules use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from mlc_errors import UnsupportedError

from ...target import CAPABILITIES, Attribute, Target, TargetKind

KIB = 1 << 10
WARP = 32
SECTOR = 32  # bytes; the unit of accesses to device memory
MAX_THREADS_PER_BLOCK = 1024
REGISTERS_PER_MULTIPROCESSOR = 64 * KIB
REGISTERS_OF_A_WARP = 256  # allocation granularity
REGISTERS_PER_THREAD = 255  # the limit of an instruction's encoding
BLOCKS_PER_MULTIPROCESSOR = 32
RESERVED_SHARED_BYTES = KIB  # per block, reserved by the system
TRANSFERS_PER_CLOCK = 2  # of device memory
STATIC_SHARED_BYTES = 48 * KIB  # the limit; more must be requested at the launch


@dataclass(frozen=True)
class Architecture:
    """A row of the table, from the CUDA C++ Programming Guide, "Compute Capabilities".

    ptx: the lowest PTX version that has the architecture, times 10. shared_kib: maximum shared memory per block.
    threads: maximum per multiprocessor. lanes: float32 instructions of a multiprocessor per clock, by lane. mma_flop:
    dense float16 operations (two per multiply-add) of its tensor cores per clock, from NVIDIA's architecture papers
    (A100, GA102, Ada, H100, Blackwell); GeForce cards have half of it with float32 accumulation. multiprocessors,
    l2_kib, clock_mhz (the maximum), memory_gb_per_s (of its pins): of the largest GPU of the architecture that is sold
    for servers or desktops, from its data sheet.
    """

    ptx: int
    shared_kib: int
    threads: int
    lanes: int
    mma_flop: int
    multiprocessors: int
    l2_kib: int
    clock_mhz: int
    memory_gb_per_s: int


ARCHITECTURES = {
    "sm_80": Architecture(70, 163, 2048, 64, 2048, 108, 40 * KIB, 1410, 2039),
    "sm_86": Architecture(71, 99, 1536, 128, 1024, 84, 6 * KIB, 1740, 696),
    "sm_89": Architecture(78, 99, 1536, 128, 1024, 142, 96 * KIB, 2520, 864),
    "sm_90": Architecture(78, 227, 2048, 128, 4096, 132, 50 * KIB, 1980, 3352),
    "sm_90a": Architecture(80, 227, 2048, 128, 4096, 132, 50 * KIB, 1980, 3352),
    "sm_100a": Architecture(86, 227, 2048, 128, 8192, 148, 126 * KIB, 1965, 8000),
    "sm_120": Architecture(87, 99, 1536, 128, 1024, 170, 96 * KIB, 2407, 1792),
}

SIZES = ("multiprocessors", "max-shared-memory-per-block", "max-threads", "l2-bytes", "clock-mhz", "memory-gb-per-s")
"""The attributes of a target that are numbers, in the order of the fields of ``Gpu``."""


def capability(arch: str) -> int:
    """The compute capability of an architecture, times 10: 90 for ``sm_90a``."""
    return int(re.sub(r"\D", "", arch))


@dataclass(frozen=True)
class Gpu:
    """The parameters of a GPU that schedules and their cost estimates depend on.

    arch: the architecture that code is generated for. shared_bytes: maximum shared memory per block. threads: maximum
    per multiprocessor. l2_bytes: size of the L2 cache. clock_mhz: maximum clock. memory_gb_per_s: rate of device
    memory.
    """

    arch: str
    multiprocessors: int
    shared_bytes: int
    threads: int
    l2_bytes: int
    clock_mhz: int
    memory_gb_per_s: int

    @property
    def bulk_copies(self) -> bool:
        """Whether its code may use ``cp.async.bulk`` (PTX ISA 8.0, sm_90)."""
        return capability(self.arch) >= 90 and ARCHITECTURES[self.arch].ptx >= 80

    @staticmethod
    def of(target: Target) -> Gpu:
        """The GPU of a target."""
        return _gpu_of(target)


@cache
def _gpu_of(target: Target) -> Gpu:
    return Gpu(target.cpu, *(int(str(target.attrs[name])) for name in SIZES))


def resident_blocks(registers: int, shared_bytes: int, threads: int, gpu: Gpu) -> int:
    """Blocks that a multiprocessor runs at a time (CUDA Best Practices Guide, 11.1); 0 if it has no room for one.

    registers: per thread. shared_bytes, threads: per block.
    """
    warps = -(-threads // WARP)
    of_a_warp = -(-registers * WARP // REGISTERS_OF_A_WARP) * REGISTERS_OF_A_WARP
    by_registers = REGISTERS_PER_MULTIPROCESSOR // max(of_a_warp * warps, 1)
    by_shared = (gpu.shared_bytes + RESERVED_SHARED_BYTES) // (shared_bytes + RESERVED_SHARED_BYTES)
    by_threads = gpu.threads // (warps * WARP)
    return min(by_registers, by_shared, by_threads, BLOCKS_PER_MULTIPROCESSOR)


OPTIONS: Mapping[str, type] = {
    "arch": tuple,
    "mtriple": str,
    "mcpu": str,
    "mattr": str,
    "host": str,
    **dict.fromkeys(SIZES, int),
}


def complete(given: Mapping[str, Any]) -> Mapping[str, Attribute]:
    """All attributes of a CUDA target: those given, and the rest from the table or from this machine's GPU.

    ``arch`` lists architectures: PTX is generated for the lowest, machine code for each of them. A number is the
    ordinal of one of this machine's GPUs; the default is 0. Raises UnsupportedError for an unknown architecture, and
    when this machine has no such GPU.
    """
    named: tuple[str, ...] = given.get("arch") or ("0",)
    detected = _detected(int(named[0])) if len(named) == 1 and named[0].isdecimal() else {}
    names: tuple[str, ...] = detected.get("arch", named)  # type: ignore[assignment]
    for name in names:
        if name not in ARCHITECTURES:
            raise UnsupportedError(f"target cuda: arch is {name!r}", hint=f"known: {', '.join(ARCHITECTURES)}")
    lowest = min(names, key=lambda name: (capability(name), name))
    _check_together(lowest, names)
    row = ARCHITECTURES[lowest]
    found: dict[str, Attribute] = {
        "arch": tuple(sorted(set(names), key=lambda name: (capability(name), name))),
        "mtriple": "nvptx64-nvidia-cuda",
        "mcpu": lowest,
        "mattr": f"+ptx{row.ptx}",
        "host": llvm.get_default_triple(),
        "multiprocessors": row.multiprocessors,
        "max-shared-memory-per-block": row.shared_kib * KIB,
        "max-threads": row.threads,
        "l2-bytes": row.l2_kib * KIB,
        "clock-mhz": row.clock_mhz,
        "memory-gb-per-s": row.memory_gb_per_s,
    }
    fixed = ("arch", "mtriple", "mcpu", "mattr")
    return {
        **found,
        **detected,
        **{name: value for name, value in given.items() if name not in fixed},
        "arch": found["arch"],
    }


def _check_together(lowest: str, names: tuple[str, ...]) -> None:
    """Raise UnsupportedError for architectures that cannot run the code of the lowest one."""
    if lowest.endswith("a") and set(names) != {lowest}:
        others = ", ".join(sorted(set(names) - {lowest}))
        raise UnsupportedError(
            f"target cuda: code for {lowest} does not run on {others}",
            hint=f"name {lowest.removesuffix('a')} instead, or compile a library for each",
        )


@cache
def _detected(ordinal: int) -> Mapping[str, Attribute]:
    """Attributes of one of this machine's GPUs. Raises UnsupportedError when there is no such GPU."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise _no_gpu(f"cuda-bindings is not installed ({error})") from None
    try:
        status, *_ = driver.cuInit(0)
    except RuntimeError as error:
        raise _no_gpu(str(error)) from None
    if status != driver.CUresult.CUDA_SUCCESS:
        raise _no_gpu(f"the CUDA driver says {status.name}")
    status, count = driver.cuDeviceGetCount()
    if status != driver.CUresult.CUDA_SUCCESS:
        raise _no_gpu(f"the CUDA driver says {status.name}")
    if ordinal >= count:
        raise _no_gpu(f"there is no device {ordinal}; this machine has {count} CUDA devices")
    _, device = driver.cuDeviceGet(ordinal)
    attribute = driver.CUdevice_attribute

    def read(name: str) -> int:
        return int(driver.cuDeviceGetAttribute(getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), device)[1])

    name = f"sm_{read('COMPUTE_CAPABILITY_MAJOR')}{read('COMPUTE_CAPABILITY_MINOR')}"
    return {
        "arch": (f"{name}a" if f"{name}a" in ARCHITECTURES else name,),
        "multiprocessors": read("MULTIPROCESSOR_COUNT"),
        "max-shared-memory-per-block": read("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        "max-threads": read("MAX_THREADS_PER_MULTIPROCESSOR"),
        "l2-bytes": read("L2_CACHE_SIZE"),
        "clock-mhz": read("CLOCK_RATE") // 1000,
        "memory-gb-per-s": read("MEMORY_CLOCK_RATE")
        * TRANSFERS_PER_CLOCK
        * read("GLOBAL_MEMORY_BUS_WIDTH")
        // 8_000_000,
    }


def runs_here(target: Target) -> bool:
    """Whether this machine's first GPU runs code for a target."""
    try:
        found = _detected(0)["arch"]
    except UnsupportedError:
        return False
    assert isinstance(found, tuple)
    if target.cpu.endswith("a"):
        return found == (target.cpu,)
    return capability(found[0]) >= capability(target.cpu)


def _no_gpu(why: str) -> UnsupportedError:
    return UnsupportedError(
        f"target cuda: no GPU found: {why}",
        hint=f"name the architecture to compile for, as cuda:sm_90a; known: {', '.join(ARCHITECTURES)}",
    )


def _has(target: Target, name: str) -> bool:
    """Whether the target has a capability, an architecture's instructions (``sm_80``) or a PTX version (``ptx78``)."""
    if name in CAPABILITIES:
        return True
    if name.startswith("ptx"):
        return int(str(target.attrs["mattr"]).removeprefix("+ptx")) >= int(name.removeprefix("ptx"))
    if name.endswith("a"):
        return target.cpu == name
    return name.startswith("sm_") and capability(target.cpu) >= capability(name)


CUDA_KIND = TargetKind("cuda", ("nvptx",), OPTIONS, complete, "arch", _has, host="host")
