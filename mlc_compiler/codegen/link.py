"""Object code to a shared library, with the system's linker or the one inside the ``ziglang`` package."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from mlc_errors import MLCError, ResourceError


def link_command() -> list[str]:
    """The linker to use, up to the output flag. Raises ResourceError when there is none."""
    cc = shutil.which(os.environ.get("CC", "cc"))
    if cc:
        return [cc, "-shared", "-Wl,--build-id=none", "-Wl,-z,noexecstack", "-pthread", "-lm"]
    ld = shutil.which("ld.lld") or shutil.which("ld")
    if ld:
        return [ld, "-shared", "--build-id=none", "-z", "noexecstack"]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "ld.lld", "-shared", "--build-id=none", "-z", "noexecstack"]
    raise ResourceError(
        "linking failed: no linker found (looked for cc, ld.lld, ld and the ziglang package)",
        hint="install one of them: apt install gcc, or pip install ziglang",
    )


def link_shared(object_code: bytes, output: Path) -> None:
    """Write the shared library ``output``: under a temporary name beside it, renamed when complete."""
    command = link_command()
    with tempfile.TemporaryDirectory(prefix="mlc-link-") as folder:
        source = Path(folder) / "lib.o"
        source.write_bytes(object_code)
        linked = Path(folder) / "lib.so"
        result = subprocess.run([*command, "-o", str(linked), str(source)], capture_output=True, text=True, check=False)
        if result.returncode:
            said = result.stderr.strip()
            raise MLCError(f"linking failed: {command[0]} exited with {result.returncode}", where=(said,))
        temporary = output.with_name(f".{output.name}.{os.getpid()}.tmp")
        shutil.copyfile(linked, temporary)
        os.chmod(temporary, 0o755)
        os.replace(temporary, output)
