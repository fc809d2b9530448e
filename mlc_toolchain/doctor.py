"""Examine this machine for the toolchain: versions, CPU and GPU, linker, memory, disk, cache."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from importlib import metadata

from mlc_compiler.backends import host_target
from mlc_compiler.codegen.link import find_linker
from mlc_compiler.target import Target
from mlc_errors import MLCError
from mlc_runtime.host import NVIDIA, default_num_threads, free_memory
from mlc_toolchain.model_cache import cache_root, entries
from mlc_toolchain.writer import free_space
from mlc_version import __version__

PACKAGE = "mlc-cli"
LISTED_SETS = (
    "avx2",
    "fma",
    "f16c",
    "avxvnni",
    "avx512f",
    "avx512vnni",
    "avx512bf16",
    "dotprod",
    "i8mm",
    "bf16",
    "sve",
)


@dataclass(frozen=True)
class Finding:
    """A finding. problem: what does not work, "" if everything does; hint: how to fix it."""

    name: str
    found: str
    problem: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Memory:
    """Bytes of free memory, of free space on the cache's disk, and of the cache's entries."""

    free_memory_bytes: int
    free_disk_bytes: int
    cache_bytes: int


def examine() -> tuple[list[Finding], Memory]:
    """All findings; nothing is changed."""
    machine = Target("cpu")
    root = cache_root()
    memory = Memory(free_memory(), free_space(root), sum(entry.nbytes for entry in entries()))
    findings = [
        Finding("mlc_cli", f"{__version__}, Python {platform.python_version()}, {platform.platform()}"),
        _packages(),
        Finding("CPU", f"{machine.cpu}, {default_num_threads()} cores for this process"),
        Finding("instruction sets", " ".join(name for name in LISTED_SETS if machine.has(name)) or "basic ones"),
        _linker(machine),
        _gpu(),
        Finding("cache", str(root)),
    ]
    return findings, memory


def _packages() -> Finding:
    """The installed versions of the package's dependencies."""
    needed = [re.match(r"[\w.-]+", line) for line in metadata.requires(PACKAGE) or () if "extra ==" not in line]
    names = [found[0] for found in needed if found]
    return Finding("packages", ", ".join(f"{name} {metadata.version(name)}" for name in names))


def _linker(machine: Target) -> Finding:
    try:
        return Finding("linker", " ".join(find_linker(host_target(machine).arch).command))
    except MLCError as error:
        return Finding("linker", "none", "nothing can be compiled to a library", error.hint or "")


def _gpu() -> Finding:
    driver = NVIDIA / "version"
    version = driver.read_text().splitlines()[0] if driver.is_file() else "no driver"
    try:
        return Finding("GPU", f"{Target('cuda').cpu}, {version}")
    except MLCError as error:
        return Finding("GPU", error.message.removeprefix("target cuda: "))
