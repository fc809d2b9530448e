"""Build a model folder from a checkpoint with the command line, once for all test processes."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

from mlc_cli.__main__ import main


def run_command(*words: object) -> None:
    assert main([str(word) for word in words]) == 0


def build_folder(source: Path, folder: Path, scheme: str, *sizes: object) -> None:
    """Run convert_weight, gen_config with ``sizes`` as flags, and compile; activations have 16 bits, for tight error
    bounds."""
    run_command("convert_weight", source, "--quantization", scheme, "-o", folder)
    run_command("gen_config", source, "--quantization", scheme, *sizes, "-o", folder)
    run_command("compile", folder, "--device", "cpu", "--opt", "act=16", "-o", folder / "lib.so")


class SharedFolders:
    """Folders under ``root``, each made by the first process that needs it while the others wait."""

    def __init__(self, root: Path):
        self.root = root

    def get(self, name: str, make: Callable[[Path], None]) -> Path:
        folder = self.root / name
        with open(self.root / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = self.root / f"{name}.done"
            if not done.exists():
                folder.mkdir(exist_ok=True)
                make(folder)
                done.touch()
        return folder
