"""How many worker threads to start."""

from __future__ import annotations

import os
from pathlib import Path


def default_num_threads() -> int:
    """The physical cores that this process may use: its CPU affinity without sibling hyperthreads, within its quota."""
    cpus = os.sched_getaffinity(0)
    cores = {_siblings(cpu) for cpu in cpus}
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
