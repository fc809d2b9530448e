"""A virtual environment for each peer, separate from this project's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

TORCH = "torch==2.13.0"  # pinned: other versions pull gigabytes of CUDA
NATIVE = "-DGGML_NATIVE=ON"


@dataclass(frozen=True)
class Environment:
    """An environment. requirements: for pip. unwanted: broken dependencies to remove. cmake: its arguments."""

    requirements: tuple[str, ...]
    unwanted: tuple[str, ...] = ()
    cmake: str = ""


ENVIRONMENTS = {
    "transformers": Environment((TORCH, "transformers>=5.23,<6", "accelerate>=1.10", "gguf>=0.19")),
    "llama.cpp": Environment(
        ("--no-binary=llama-cpp-python", "llama-cpp-python>=0.3.36", "gguf>=0.19", "safetensors"), (), NATIVE
    ),
    "ik_llama.cpp": Environment(
        ("ik_llama_cpp_python", "numpy")
    ),  # a wheel for AVX2; compiling it takes most of an hour
    # optimum fails to import beside a torchvision for another torch
    "openvino": Environment((TORCH, "openvino-genai>=2026.4", "optimum-intel[openvino]"), ("torchvision",)),
    "ctranslate2": Environment((TORCH, "ctranslate2>=4.8", "transformers>=5.23,<6")),
    # onnxruntime-genai does not declare onnx_ir
    "onnxruntime": Environment((TORCH, "onnxruntime-genai>=0.18", "onnxruntime", "onnx", "onnx_ir", "transformers")),
}


class Environments:
    """The environments below a scratch folder, created at first use."""

    def __init__(self, scratch: Path):
        self._folder = scratch / "environments"

    def python(self, name: str) -> Path:
        """The interpreter of an environment. Raises CalledProcessError when pip fails; its output is beside it."""
        folder, wanted = self._folder / name, json.dumps(asdict(ENVIRONMENTS[name]))
        stamp = folder / "installed.json"
        if not stamp.is_file() or stamp.read_text() != wanted:
            self._install(folder, ENVIRONMENTS[name])
            stamp.write_text(wanted)
        return folder / "bin" / "python"

    def _install(self, folder: Path, environment: Environment) -> None:
        print(f"installing {folder.name} to {folder}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip: list[str | Path] = [folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
        variables = {**os.environ, "CMAKE_ARGS": environment.cmake}
        with open(folder / "pip.log", "w") as log:
            subprocess.run([*pip, "install", *environment.requirements], check=True, env=variables, stdout=log)
            if environment.unwanted:
                subprocess.run([*pip, "uninstall", "--yes", *environment.unwanted], check=True, stdout=log)
