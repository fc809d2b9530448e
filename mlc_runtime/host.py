"""What this machine is: architecture, SIMD width, cores."""

from __future__ import annotations

import os
import platform
from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")
X86_FLAGS_OF_WIDTH = {256: frozenset({"avx2"}), 512: frozenset({"avx2", "avx512f", "avx512vl"})}


def host_machine() -> str:
    """This machine's name as ELF files are classified: x86_64, aarch64 …"""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def missing_cpu_flags(vector_bits: int) -> list[str]:
    """What an x86 CPU would need for code with SIMD registers of that width and does not have; [] elsewhere."""
    if host_machine() != "x86_64":
        return []
    try:
        lines = CPU_INFO.read_text().splitlines()
    except OSError:
        return []
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return sorted(X86_FLAGS_OF_WIDTH.get(vector_bits, frozenset()) - set(flags)) if flags else []


def default_num_threads() -> int:
    """The physical cores that this process may use: its CPU affinity without sibling hyperthreads, within its quota."""
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
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, int(quota) // int(period))
    except (OSError, ValueError):
        return None
