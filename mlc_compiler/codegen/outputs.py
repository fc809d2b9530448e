"""Output files of a compilation, by suffix: a shared library, objects for static linking, or text."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path

from mlc_errors import UsageError
from mlc_files import cannot_write, whole_file
from mlc_scratch import temporary_folder

from ..target import Target
from .link import archive, link_relocatable, link_shared
from .native import Native

SHARED, ASSEMBLY, LLVM_IR = ".so", ".s", ".ll"
STATIC = (".o", ".a", ".tar")
SUFFIXES = (SHARED, *STATIC, ASSEMBLY, LLVM_IR)


def check_output(output: Path, prefix: str = "") -> None:
    """Raise UsageError for an unknown suffix, and for a symbol prefix that is invalid or unsupported for the output."""
    if output.suffix not in SUFFIXES:
        raise UsageError(
            f"--output: {output.name} has the suffix {output.suffix!r}; expected one of {', '.join(SUFFIXES)}"
        )
    if prefix and output.suffix not in STATIC:
        raise UsageError(
            f"--system-lib-prefix: {output.name} is not for static linking; expected one of {', '.join(STATIC)}"
        )
    if prefix and not (prefix.isascii() and prefix.isidentifier()):
        raise UsageError(f"--system-lib-prefix: {prefix!r} cannot begin the name of a C function")


def write_output(native: Native, output: Path, target: Target) -> None:
    """Write compiled modules to ``output`` atomically, as its suffix says.

    ``.so``: a shared library. ``.o``: one object. ``.a``: an archive. ``.tar``: the objects. ``.s``: assembly.
    ``.ll``: optimized LLVM IR; the last two must be in ``native``. Raises MLCError when a tool fails or the file cannot
    be written, ResourceError without a linker.
    """
    if output.suffix == SHARED:
        link_shared(native.objects, output, target)
    elif output.suffix in _TEXTS:
        text = _TEXTS[output.suffix](native)
        assert text is not None
        _write(output, text.encode())
    elif output.suffix == ".tar":
        _write(output, _tar(native.objects))
    else:
        with temporary_folder("link") as folder:
            made = folder / f"lib{output.suffix}"
            (archive if output.suffix == ".a" else link_relocatable)(native.objects, made, target)
            _write(output, made.read_bytes())


_TEXTS: Mapping[str, Callable[[Native], str | None]] = {
    ASSEMBLY: lambda native: native.assembly,
    LLVM_IR: lambda native: native.llvm_ir,
}


def _tar(objects: tuple[bytes, ...]) -> bytes:
    """A tar archive without dates, so that equal objects give equal archives."""
    data = BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for number, code in enumerate(objects):
            entry = tarfile.TarInfo(f"lib{number}.o")
            entry.size = len(code)
            tar.addfile(entry, BytesIO(code))
    return data.getvalue()


def _write(output: Path, data: bytes) -> None:
    try:
        with whole_file(output) as file:
            shutil.copyfileobj(BytesIO(data), file)
    except OSError as error:
        raise cannot_write("the output", output, error) from None
