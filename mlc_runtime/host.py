"""This machine's architecture, instruction sets and cores."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")
MEMORY_INFO = Path("/proc/meminfo")
NVIDIA = Path("/proc/driver/nvidia")
CGROUP = Path("/sys/fs/cgroup")

# The instruction sets that compiled code may use: LLVM's names, and the kernel's where they differ.
_AVX512 = "f bw cd dq vl ifma vbmi vbmi2 bitalg vnni vpopcntdq bf16 fp16"
_AVX512_BY_ITS_FLAG = {"f", "bw", "cd", "dq", "vl", "ifma", "vbmi"}  # the kernel writes avx512f, but avx512_vnni
KERNEL_NAMES = {
    "x86_64": {
        **{name: name for name in "ssse3 popcnt movbe avx avx2 fma f16c bmi2 gfni".split()},
        **{"sse3": "pni", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "bmi": "bmi1", "lzcnt": "abm", "avxvnni": "avx_vnni"},
        **{f"avx512{x}": f"avx512{x}" if x in _AVX512_BY_ITS_FLAG else f"avx512_{x}" for x in _AVX512.split()},
    },
    "aarch64": {"dotprod": "asimddp", "fullfp16": "asimdhp", **{name: name for name in "i8mm bf16 sve sve2".split()}},
}


def host_machine() -> str:
    """This machine's architecture, named as in ELF headers: x86_64, aarch64 …"""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def missing_instruction_sets(needed: Iterable[str]) -> list[str]:
    """The instruction sets in ``needed`` (LLVM's names) that /proc/cpuinfo does not report.

    [] on architectures other than x86_64 and aarch64, and without /proc/cpuinfo.
    """
    names = KERNEL_NAMES.get(host_machine(), {})
    lines = _lines(CPU_INFO)
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))), [])
    return sorted(name for name in needed if name in names and names[name] not in flags) if flags else []


def machine_identity() -> list[str]:
    """The properties that compiled code depends on: CPU model and flags, GPUs and their driver."""
    lines = _lines(CPU_INFO)
    cpu = [next((line for line in lines if line.startswith(key)), "") for key in ("model name", "flags", "Features")]
    gpus = [path / "information" for path in sorted(NVIDIA.glob("gpus/*"))]
    return [host_machine(), *cpu, *(line for path in (NVIDIA / "version", *gpus) for line in _lines(path))]


def _lines(path: Path) -> list[str]:
    """The lines of a file, [] if it does not exist."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def free_memory() -> int:
    """Bytes of memory available to new processes: the kernel's MemAvailable, within the cgroup's limit."""
    known = (line.split() for line in _lines(MEMORY_INFO) if line.startswith("MemAvailable:"))
    available = next(
        (int(words[1]) << 10 for words in known), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    )
    limit, used = (_lines(CGROUP / name) for name in ("memory.max", "memory.current"))
    if not (limit and used and limit[0].isdecimal()):
        return available
    return min(available, max(0, int(limit[0]) - int(used[0])))


def default_num_threads() -> int:
    """The number of physical cores that this process may use, by its CPU affinity and the cgroup's quota."""
    cores = {_siblings(cpu) for cpu in os.sched_getaffinity(0)}
    return max(1, min(len(cores), _cgroup_quota() or len(cores)))


def _siblings(cpu: int) -> str:
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(cpu)


def _cgroup_quota() -> int | None:
    """Whole CPUs of the cgroup's time quota; None without one. Spinning workers must not outnumber it."""
    try:
        quota, period = (CGROUP / "cpu.max").read_text().split()
        return max(1, int(quota) // int(period))
    except (OSError, ValueError):
        return None
