"""Measure the CPU use of other programs with Linux' counters."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
QUIET_INTERVAL_S = 0.3
_USER, _NICE, _SYSTEM, _IRQ, _SOFTIRQ, _STEAL = 0, 1, 2, 5, 6, 7  # columns of /proc/stat; 3 and 4 are idle


@dataclass(frozen=True)
class Reading:
    """Counters in seconds: wall clock, busy or stolen time of all CPUs, CPU time of the measured programs."""

    wall: float
    busy: float
    own: float


def read(pids: Sequence[int]) -> Reading:
    """Read the counters. pids: the measured programs besides this one."""
    stat = Path("/proc/stat").read_text().splitlines()[0]
    own = sum(process_seconds(Path(f"/proc/{pid}/stat").read_text()) for pid in [os.getpid(), *pids])
    return Reading(time.perf_counter(), busy_seconds(stat), own)


def busy_seconds(line: str) -> float:
    """Busy seconds of all CPUs from the first line of /proc/stat."""
    columns = [int(column) for column in line.split()[1:]]
    return sum(columns[i] for i in (_USER, _NICE, _SYSTEM, _IRQ, _SOFTIRQ, _STEAL)) / TICKS_PER_S


def process_seconds(line: str) -> float:
    """User and system time from /proc/PID/stat; the program's name in parentheses may have spaces."""
    columns = line.rpartition(")")[2].split()
    return (int(columns[11]) + int(columns[12])) / TICKS_PER_S


def others(before: Reading, after: Reading) -> float:
    """The number of CPUs that other programs used, 0 to the number of CPUs; two ticks are the counters' error."""
    seconds = (after.busy - before.busy) - (after.own - before.own) - 2 / TICKS_PER_S
    return max(0.0, seconds) / (after.wall - before.wall)


def wait_until_quiet(limit: float, seconds: float) -> None:
    """Wait until other programs, including idle workers, use at most ``limit`` CPUs, or for ``seconds``."""
    end = time.perf_counter() + seconds
    before = read([])
    while time.perf_counter() < end:
        time.sleep(QUIET_INTERVAL_S)
        after = read([])
        if others(before, after) <= limit:
            return
        before = after
