"""Object code to a shared library, with the system's linker or the one inside the ``ziglang`` package."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlc_errors import MLCError, ResourceError

from ..target import Target, host_arch


@dataclass(frozen=True)
class Linker:
    """A command up to the output flag, and the libraries that come last."""

    command: tuple[str, ...]
    libraries: tuple[str, ...] = ()


_FLAGS = ("-shared", "--build-id=none", "-z", "noexecstack")


def find_linker(foreign: bool = False) -> Linker:
    """The linker to use; ``foreign``: for another architecture. Raises ResourceError when there is none."""
    cc = shutil.which(os.environ.get("CC", "cc"))
    if cc and not foreign:
        return Linker((cc, "-shared", "-Wl,--build-id=none", "-Wl,-z,noexecstack", "-pthread"), ("-lm",))
    ld = shutil.which("ld.lld") or (None if foreign else shutil.which("ld"))
    if ld:
        return Linker((ld, *_FLAGS))
    if importlib.util.find_spec("ziglang"):
        return Linker((sys.executable, "-m", "ziglang", "ld.lld", *_FLAGS))
    wanted = "ld.lld and the ziglang package" if foreign else "cc, ld.lld, ld and the ziglang package"
    raise ResourceError(
        f"linking failed: no linker found (looked for {wanted})",
        hint=f"install one of them: {'' if foreign else 'apt install gcc, or '}pip install ziglang",
    )


def link_shared(objects: Sequence[bytes], output: Path, target: Target) -> None:
    """Write the shared library ``output``: under a temporary name beside it, renamed when complete."""
    linker = find_linker(foreign=target.arch != host_arch())
    with tempfile.TemporaryDirectory(prefix="mlc-link-") as folder:
        sources = [str(_written(Path(folder) / f"{i}.o", code)) for i, code in enumerate(objects)]
        linked = Path(folder) / "lib.so"
        command = [*linker.command, "-o", str(linked), *sources, *linker.libraries]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            said = result.stderr.strip()
            raise MLCError(f"linking failed: {command[0]} exited with {result.returncode}", where=(said,))
        temporary = output.with_name(f".{output.name}.{os.getpid()}.tmp")
        shutil.copyfile(linked, temporary)
        os.chmod(temporary, 0o755)
        os.replace(temporary, output)


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path
