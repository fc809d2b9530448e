"""Functions of object files and C sources that are linked into the library.

The attribute ``linked`` of a module maps each symbol to its definition: the path of an object file, or C source
text. Graph functions call it as ``R.call_dps_packed("symbol", …)``; its C signature is

    int symbol(DLTensor *input, …, DLTensor *result, …);

with ``int64_t`` and ``double`` for numbers and ``const char *`` for strings. It runs on one thread and returns 0; any
other number is an error of the call. ``#include <dlpack/dlpack.h>`` declares DLTensor.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from mlc_errors import MLCError, ResourceError, UnsupportedError
from mlc_scratch import temporary_folder

from ..ir.module import IRModule
from ..target import Target, host_arch

LINKED = "linked"
OBJECT_SUFFIX = ".o"


def linked_functions(mod: IRModule) -> Mapping[str, str]:
    """Symbol -> definition of each function that is linked in: a path that ends in ``.o``, or C source text."""
    found: Mapping[str, str] = mod.attrs.get(LINKED, {})
    return found


def linked_objects(mod: IRModule, target: Target, host: Target) -> tuple[bytes, ...]:
    """The objects of ``linked_functions``; C sources are compiled.

    Raises UnsupportedError for a target whose tensors are not in the host's memory, MLCError for a missing object and
    for a source that does not compile, ResourceError without a C compiler.
    """
    definitions = dict.fromkeys(linked_functions(mod).values())
    if definitions and target.kind != host.kind:
        raise UnsupportedError(f"functions that are linked in run on CPUs; the target is {target}")
    return tuple(_objects(definitions, host))


def _objects(definitions: Mapping[str, None], host: Target) -> Iterator[bytes]:
    for definition in definitions:
        yield _read(Path(definition)) if definition.endswith(OBJECT_SUFFIX) else _compiled(definition, host)


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise MLCError(f"the object {path} does not exist")
    return path.read_bytes()


def _compiled(source: str, host: Target) -> bytes:
    foreign = host.arch != host_arch()
    compiler = shutil.which(f"{host.arch}-linux-gnu-gcc" if foreign else os.environ.get("CC", "cc"))
    if compiler is None:
        raise ResourceError(f"no C compiler for {host.arch} is found", hint="give an object file instead of a source")
    with temporary_folder("c") as folder:
        made = folder / "linked.o"
        include = ("-I", str(_dlpack_headers()))
        command = (compiler, "-x", "c", "-", "-c", "-O3", "-fPIC", *include, "-o", str(made))
        result = subprocess.run(command, input=source, capture_output=True, text=True, errors="replace", check=False)
        if result.returncode:
            raise MLCError("a C source that is linked in does not compile", where=(result.stderr.strip(),))
        return made.read_bytes()


def _dlpack_headers() -> Path:
    """The folder of ``dlpack/dlpack.h`` in the package tvm_ffi, found without importing it, which takes seconds."""
    found = importlib.util.find_spec("tvm_ffi")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent / "include"
