"""Compile time, memory and library size against the number of layers: the Llama shape of ``compile_time.py``.

Run ``python benchmarks/compile_growth.py``. Each number of layers is compiled in a process of its own.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from compile_time import MODEL, RESULTS, Result, run
from matplotlib import pyplot

from mlc_cli import console
from mlc_evaluation.machine_limits import machine_name
from mlc_version import __version__

matplotlib.use("svg")
matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
LAYERS = (2, 5, 10, 20, 40, 80)


@dataclass(frozen=True)
class Row:
    """One compilation, imports included. cpu_seconds: of all its processes; peak_bytes: of the largest of them."""

    layers: int
    bindings: int
    kernels: int
    cpu_seconds: float
    wall_seconds: float
    peak_bytes: int
    library_bytes: int


@dataclass(frozen=True)
class Growth:
    """The rows of a scheme on a machine."""

    machine: str
    version: str
    quantization: str
    rows: tuple[Row, ...]


def compiled(layers: int, quantization: str) -> Row:
    """Compile the shape with that many layers in a new process."""
    command = (sys.executable, __file__, "--only", str(layers), "--quantization", quantization)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the compilation of {layers} layers ended with exit code {process.returncode}")
    result = Result(**json.loads(output))
    cpu, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
    wall = sum(result.seconds.values())
    return Row(layers, result.bindings, result.kernels, cpu, wall, peak, result.library_bytes)


def plot(growth: Growth, path: Path) -> None:
    """Three panels against the number of layers, as SVG."""
    figure, panels = pyplot.subplots(1, 3, figsize=(15, 4.5), layout="constrained")
    layers = [row.layers for row in growth.rows]
    series = {
        "CPU seconds": [row.cpu_seconds for row in growth.rows],
        "peak memory, MB": [row.peak_bytes / 1e6 for row in growth.rows],
        "library, MB": [row.library_bytes / 1e6 for row in growth.rows],
    }
    for panel, (name, values) in zip(panels, series.items(), strict=True):
        panel.plot(layers, values, marker="o")
        panel.set(xlabel="layers", ylabel=name, ylim=(0, None))
        panel.grid(alpha=0.3)
    figure.suptitle(f"compile time, 1.1 B Llama shape, {growth.quantization}")
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quantization", default="q4f16_1")
    parser.add_argument("--layers", type=int, nargs="+", default=LAYERS)
    parser.add_argument("--only", type=int, help="compile this number of layers in this process and print the result")
    args = parser.parse_args()
    if args.only is not None:
        model = dataclasses.replace(MODEL, num_hidden_layers=args.only)
        print(json.dumps(dataclasses.asdict(run(args.quantization, "cpu", model))))
        return
    rows = tuple(compiled(layers, args.quantization) for layers in args.layers)
    growth = Growth(machine_name(), __version__, args.quantization, rows)
    console.table(
        ["layers", "bindings", "kernels", "CPU s", "peak", "library"],
        [
            [f"{r.layers}", f"{r.bindings}", f"{r.kernels}", f"{r.cpu_seconds:.1f}"]
            + [console.format_bytes(r.peak_bytes), console.format_bytes(r.library_bytes)]
            for r in rows
        ],
    )
    result = RESULTS / f"compile_growth-{args.quantization}.json"
    result.write_text(console.to_json(growth) + "\n")
    plot(growth, result.with_suffix(".svg"))


if __name__ == "__main__":
    main()
