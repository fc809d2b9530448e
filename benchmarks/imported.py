"""Compare imported models with PyTorch, torch.compile and ONNX Runtime: milliseconds per call, in turns.

    python -m venv ../ort && ../ort/bin/pip install onnxruntime numpy
    python benchmarks/imported.py --onnxruntime ../ort/bin/python --threads 1 2

Each engine runs in a separate process; the engines of a cell take turns, and a figure is the minimum of its samples:
CPU time with one thread, wall time with several. Results are compared with PyTorch's first. Cells that are not measured
are kept in the results file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from imported_models import MODELS, model_named
from imported_worker import ENGINES

from mlc_cli import console
from mlc_evaluation.machine_limits import machine_name

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "imported.json"
OWN = ("mlc", "mlc-onnx")
LARGEST_ERROR = 1e-4


@dataclass(frozen=True)
class Cell:
    """The result for one model. milliseconds: per call; errors: maximum |difference| to PyTorch over 1 + |result|."""

    model: str
    threads: int
    milliseconds: dict[str, float]
    errors: dict[str, float]

    @property
    def ratio(self) -> float | None:
        """The time of the fastest other engine, divided by this project's."""
        others = [ms for engine, ms in self.milliseconds.items() if engine not in OWN]
        own = self.milliseconds.get("mlc")
        return min(others) / own if others and own else None


class Worker:
    """An engine's process."""

    def __init__(self, python: str, engine: str, model: str, folder: Path, threads: int):
        command = [python, str(HERE / "imported_worker.py"), engine, model, str(folder), str(threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.error = self._number()

    def _number(self) -> float:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(map(str, self.process.args))} failed")  # type: ignore[arg-type]
        return float(line)

    def seconds(self) -> float:
        """Take one sample: the seconds of a call."""
        print(file=self.process.stdin, flush=True)
        return self._number()

    def close(self) -> None:
        """End the process."""
        self.process.communicate()


def prepare(name: str, folder: Path) -> None:
    """Write a model as ONNX, with its input and PyTorch's result."""
    model, inputs = model_named(name)
    with torch.no_grad():
        np.savez(folder / f"{name}.npz", x=inputs[0].numpy(), y=model(*inputs).numpy())
        torch.onnx.export(model, inputs, folder / f"{name}.onnx", dynamo=False, opset_version=17, input_names=["x"])


def measure(name: str, threads: int, engines: dict[str, str], folder: Path, samples: int) -> Cell:
    """Measure the engines in turns. engines: Python interpreter by engine."""
    workers = {engine: Worker(python, engine, name, folder, threads) for engine, python in engines.items()}
    errors = {engine: worker.error for engine, worker in workers.items()}
    wrong = {engine: error for engine, error in errors.items() if not error <= LARGEST_ERROR}
    if wrong:
        raise SystemExit(f"{name}: results differ from PyTorch's: {wrong}")
    times: dict[str, list[float]] = {engine: [] for engine in engines}
    for _ in range(samples):
        for engine, worker in workers.items():
            times[engine].append(worker.seconds() * 1e3)
    for worker in workers.values():
        worker.close()
    return Cell(name, threads, {engine: min(t) for engine, t in times.items()}, errors)


def show(cell: Cell) -> None:
    """Print milliseconds of a call, and the ratio of the fastest other engine's to this project's."""
    ratio = f"{cell.ratio:.2f}" if cell.ratio else "-"
    row = [cell.model, cell.threads, *(f"{ms:.2f}" for ms in cell.milliseconds.values()), ratio]
    console.table(("model", "threads", *cell.milliseconds, "ratio"), [row])


def store(path: Path, cell: Cell) -> None:
    """Store a cell in the results file, replacing an earlier one."""
    cells = json.loads(path.read_text())["cells"] if path.exists() else []
    others = [c for c in cells if (c["model"], c["threads"]) != (cell.model, cell.threads)]
    path.write_text(console.to_json({"machine": machine_name(), "cells": [*others, cell]}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--samples", type=int, default=7)
    parser.add_argument("--onnxruntime", default=sys.executable, help="the Python that has the package onnxruntime")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    engines = {e: args.onnxruntime if e == "onnxruntime" else sys.executable for e in args.engines}
    with tempfile.TemporaryDirectory() as scratch:
        for name in args.models:
            prepare(name, Path(scratch))
            for threads in args.threads:
                cell = measure(name, threads, engines, Path(scratch), args.samples)
                store(args.output, cell)
                show(cell)


if __name__ == "__main__":
    main()
