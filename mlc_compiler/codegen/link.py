"""Link and archive object code, with the system's tools or those of the ``ziglang`` package."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import llvmlite.binding as llvm

from mlc_errors import MLCError, ResourceError
from mlc_files import copy_library, seal_library
from mlc_scratch import temporary_folder

from ..target import Target, host_arch
from .native import machine


@dataclass(frozen=True)
class Linker:
    """A linker: its command, the flags for a shared library and for one object, the libraries to link.

    finds_libraries: whether it is a compiler driver, which has library search paths, rather than a bare linker.
    """

    command: tuple[str, ...]
    shared: tuple[str, ...] = ("-shared", "--build-id=none", "-z", "noexecstack")
    relocatable: tuple[str, ...] = ("-r",)
    libraries: tuple[str, ...] = ()
    finds_libraries: bool = False


LIBM = "libm.so.6"


def find_linker(arch: str) -> Linker:
    """The linker for an architecture. Raises ResourceError when there is none."""
    foreign = arch != host_arch()
    cc = shutil.which(f"{arch}-linux-gnu-gcc" if foreign else os.environ.get("CC", "cc"))
    if cc:
        shared = ("-shared", "-Wl,--build-id=none", "-Wl,-z,noexecstack", "-pthread")
        return Linker((cc,), shared, ("-r", "-nostdlib"), ("-lm",), finds_libraries=True)
    ld = shutil.which("ld.lld") or (None if foreign else shutil.which("ld"))
    if ld:
        return Linker((ld,))
    if importlib.util.find_spec("ziglang"):
        return Linker((sys.executable, "-m", "ziglang", "ld.lld"))
    tools = f"{arch}-linux-gnu-gcc, ld.lld" if foreign else "cc, ld.lld, ld"
    raise ResourceError(
        f"linking failed: no linker for {arch} found (looked for {tools} and the ziglang package)",
        hint=f"install one of them: apt install {'lld' if foreign else 'gcc'}, or pip install ziglang",
    )


def link_shared(objects: Sequence[bytes], output: Path, target: Target) -> None:
    """Write the shared library ``output`` atomically.

    Raises MLCError when the linker fails or the file cannot be written, ResourceError without a linker.
    """
    linker = find_linker(target.arch)
    with temporary_folder("link") as folder:
        sources = _sources(folder, objects)
        libraries = linker.libraries if linker.finds_libraries else (_libm_stub(linker, folder, target),)
        linked = folder / "lib.so"
        _run([*linker.command, *linker.shared, "-o", str(linked), *sources, *libraries])
        seal_library(linked)
        copy_library(linked, output)


def link_relocatable(objects: Sequence[bytes], output: Path, target: Target) -> None:
    """Link objects to one relocatable object. Raises MLCError when the linker fails, ResourceError without a linker."""
    linker = find_linker(target.arch)
    with temporary_folder("link") as folder:
        _run([*linker.command, *linker.relocatable, "-o", str(output), *_sources(folder, objects)])


def archive(objects: Sequence[bytes], output: Path, target: Target) -> None:
    """Write an archive of objects, with an index and without dates. Raises ResourceError if no ``ar`` is found."""
    with temporary_folder("link") as folder:
        _run([*find_archiver(target.arch), "rcsD", str(output), *_sources(folder, objects)])


def find_archiver(arch: str) -> tuple[str, ...]:
    """The command of an ``ar`` for an architecture. Raises ResourceError when there is none."""
    tools = ("ar" if arch == host_arch() else f"{arch}-linux-gnu-ar", "llvm-ar")
    found = next(filter(None, map(shutil.which, tools)), None)
    if found:
        return (found,)
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", "ar")
    raise ResourceError(
        f"no archiver for {arch} found (looked for {', '.join(tools)} and the ziglang package)",
        hint="install one of them: apt install binutils, or pip install ziglang",
    )


def _sources(folder: Path, objects: Sequence[bytes]) -> list[str]:
    return [str(_written(folder / f"{i}.o", code)) for i, code in enumerate(objects)]


def _libm_stub(linker: Linker, folder: Path, target: Target) -> str:
    """A stub library with the soname of libm, so that the linked library depends on libm."""
    nothing = llvm.parse_assembly(f'target triple = "{target.triple}"')
    code = _written(folder / "nothing.o", machine(target).emit_object(nothing))
    path = str(folder / LIBM)
    _run([*linker.command, *linker.shared, "-soname", LIBM, "-o", path, str(code)])
    return path


def _run(command: Sequence[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if result.returncode:
        output = result.stderr.strip()
        raise MLCError(f"linking failed: {command[0]} exited with {result.returncode}", where=(output,))


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path
