"""Dequantized weights of the quantizers of llama.cpp and of its fork ik_llama.cpp."""

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

LLAMA_CPP, FORK = "llama.cpp", "ik_llama.cpp"
IMPORTANCE = "+imatrix"
HERE = Path(__file__).resolve().parent


class PeerWeights:
    """Peers' weights of one checkpoint. Files and the peers' environments are below ``scratch``.

    squares: mean squares of the layers' inputs, by parameter.
    """

    def __init__(self, folder: Path, scratch: Path, squares: Callable[[], Mapping[str, np.ndarray]]):
        self._folder, self._files, self._squares = folder, scratch / folder.name, squares
        self._environments = Environments(scratch)
        self._files.mkdir(parents=True, exist_ok=True)

    def weights(self, name: str) -> Weights:
        """The weights of ``PEER:TYPE``, in the peer's default mixture of types, or of ``PEER:TYPE+imatrix``."""
        peer, _, kind = name.partition(":")
        path, decoded = self._of_fork(kind) if peer == FORK else (self.file(kind), self.file(kind))
        checkpoint = GGUFCheckpoint(decoded)
        return Weights({name: checkpoint.read(name) for name in checkpoint.names()}, path.stat().st_size)

    def file(self, kind: str) -> Path:
        """llama.cpp's GGUF file of ``TYPE`` or ``TYPE+imatrix``, created if missing."""
        path = self._files / f"{kind}.gguf"
        if not path.is_file():
            importance = [self._importance()] if kind.endswith(IMPORTANCE) else []
            self.run("peers.gguf_files", self._folder, path, kind.removesuffix(IMPORTANCE), "mixed", *importance)
        return path

    def _of_fork(self, kind: str) -> tuple[Path, Path]:
        """ik_llama.cpp's GGUF file of a type, and one with its weights in float32, as other readers lack its types."""
        path, decoded = (self._files / f"{FORK}-{name}.gguf" for name in (kind, f"{kind}-F32"))
        if not decoded.is_file():
            importance = ("--imatrix", self._importance()) if kind.endswith(IMPORTANCE) else ()
            self._quantize_in_fork(*importance, self.file("F16"), path, kind.removesuffix(IMPORTANCE))
            self._quantize_in_fork("--allow-requantize", path, decoded, "F32")
        return path, decoded

    def _quantize_in_fork(self, *arguments: str | Path) -> None:
        """Run ``llama-quantize``, which ik_llama.cpp's wheel contains."""
        environment = self._environments.python(FORK).parents[1]
        (program,) = environment.glob("lib/*/site-packages/ik_llama_cpp/bin/llama-quantize")
        subprocess.run([program, *arguments], check=True, capture_output=True)

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
