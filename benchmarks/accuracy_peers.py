"""Dequantized weights of llama.cpp's quantizer."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import gguf
import numpy as np
from accuracy_reference import Weights
from peers import importance_files
from peers.environments import Environments

from mlc_toolchain.convert_weight import ConvertOptions, plan_conversion
from mlc_toolchain.gguf_checkpoint import GGUFCheckpoint

LLAMA_CPP = "llama.cpp"
IMPORTANCE = "+imatrix"
HERE = Path(__file__).resolve().parent


class PeerWeights:
    """llama.cpp's weights of one checkpoint. Files and llama.cpp's environment are below ``scratch``.

    squares: mean squares of the layers' inputs, by parameter.
    """

    def __init__(self, folder: Path, scratch: Path, squares: Callable[[], Mapping[str, np.ndarray]]):
        self._folder, self._files, self._squares = folder, scratch / folder.name, squares
        self._environments = Environments(scratch)
        self._files.mkdir(parents=True, exist_ok=True)

    def weights(self, name: str) -> Weights:
        """The weights of ``llama.cpp:TYPE``, in its default mixture of types, or of ``llama.cpp:TYPE+imatrix``."""
        path = self.file(name.partition(":")[2])
        checkpoint = GGUFCheckpoint(path)
        return Weights({name: checkpoint.read(name) for name in checkpoint.names()}, path.stat().st_size)

    def file(self, kind: str) -> Path:
        """The GGUF file of ``TYPE`` or ``TYPE+imatrix``, created if missing."""
        path = self._files / f"{kind}.gguf"
        if not path.is_file():
            importance = [self._importance()] if kind.endswith(IMPORTANCE) else []
            self.run("peers.gguf_files", self._folder, path, kind.removesuffix(IMPORTANCE), "mixed", *importance)
        return path

    def run(self, module: str, *arguments: str | Path) -> None:
        """Run a module of ``peers`` in the environment of llama.cpp. Raises RuntimeError with its last lines."""
        command = [self._environments.python(LLAMA_CPP), "-m", module, *arguments]
        variables = {**os.environ, "PYTHONPATH": str(HERE)}
        ended = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=HERE, env=variables)
        if ended.returncode:
            raise RuntimeError(f"{module} ended with {ended.returncode}:\n{ended.stderr[-2000:]}")

    def _importance(self) -> Path:
        path = self._files / "importance.dat"
        importance_files.write(importances(self._folder, self._squares()), path)
        return path


def importances(folder: Path, squares: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Importances of the layers' matrices by GGUF name. squares: mean squares of their inputs, by parameter."""
    plan = plan_conversion(ConvertOptions(str(folder), "q4f16_1", folder / "unused")).plan
    names, found = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, len(plan.productions)), {}
    for production in plan.productions:
        for source in production.value.sources():
            stored = names.get_name(source, try_suffixes=(".weight",)) or ""
            if production.name in squares and stored.startswith("blk."):
                found[stored] = squares[production.name]
    return found
