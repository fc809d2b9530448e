"""Compare operators without a matmul, alone, with PyTorch's: microseconds of a call on one thread, in turns.

    python benchmarks/operators.py --names softmax sort

Functions are imported with ``torch.export``, and compared with eager PyTorch: results first (float32 sums may be in
another order), then the CPU time of a call, which excludes other programs, the minimum of all turns. Both write to
memory that they have used before: results of this project are bound, and freed memory stays with the process.
Operators that are not measured are kept in the results file.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from operator_cases import CASES, Case
from torch import nn

from mlc_cli import console
from mlc_compiler.frontend.torch import from_exported_program
from mlc_evaluation.machine_limits import machine_name

RESULTS = Path(__file__).resolve().parent / "results" / "operators.json"
SECONDS_OF_A_TURN = 0.01
LARGEST_ERROR = 1e-2  # of a sum of 4 million elements, whose absolute values are 2 million times as large
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
LARGEST_MMAP_THRESHOLD = 32 << 20
Call = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """An operator on one size. microseconds: per call, by engine."""

    operator: str
    size: str
    microseconds: dict[str, float]

    @property
    def ratio(self) -> float:
        """PyTorch's time divided by this project's."""
        return self.microseconds["torch"] / self.microseconds["mlc"]


class Function(nn.Module):
    """A function as a module, which ``torch.export`` takes."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


def keep_freed_memory() -> None:
    """Let malloc keep freed memory, so that results of 16 MB are not new pages in each call of PyTorch."""
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD)
    libc.mallopt(M_TRIM_THRESHOLD, 1 << 30)


def compiled(case: Case, values: tuple[torch.Tensor, ...]) -> Call:
    """The call of this project's function; compares its results with PyTorch's first."""
    with torch.no_grad():
        program = torch.export.export(Function(case.function), values)
        wanted = case.function(*values)
    main = from_exported_program(program).jit(num_threads=1)["main"]
    got: Any = main(*values)
    pairs = [(got, wanted)] if isinstance(wanted, torch.Tensor) else zip(got, wanted, strict=True)
    for own, other in pairs:
        error = float(np.max(np.abs(own - other.numpy()) / (1 + np.abs(other.numpy()))))
        if not error <= LARGEST_ERROR:
            raise SystemExit(f"{case.operator} {case.size}: results differ from PyTorch's by {error:.1e}")
    weights = () if main.weights is None else (main.weights.table,)
    return main.function.bind(*values, *weights).call


def seconds_of(call: Call, count: int) -> float:
    """The mean CPU time of ``count`` calls."""
    begin = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - begin) / count


def measure(case: Case, turns: int) -> Row:
    """Time both engines in turns."""
    values = case.inputs()
    calls: dict[str, Call] = {"mlc": compiled(case, values), "torch": partial(case.function, *values)}
    counts = {name: max(1, int(SECONDS_OF_A_TURN / max(seconds_of(call, 2), 1e-6))) for name, call in calls.items()}
    found = [{name: seconds_of(call, counts[name]) for name, call in calls.items()} for _ in range(turns)]
    return Row(case.operator, case.size, {name: min(turn[name] for turn in found) * 1e6 for name in calls})


def show(rows: list[Row]) -> None:
    """Print microseconds, and PyTorch's time divided by this project's."""
    cells = [(r.operator, r.size, *(f"{us:.1f}" for us in r.microseconds.values()), f"{r.ratio:.2f}") for r in rows]
    console.table(("operator", "size", "mlc", "torch", "ratio"), cells)


def store(path: Path, rows: list[Row]) -> None:
    """Store rows in the results file, replacing earlier ones of the same operator and size."""
    kept = json.loads(path.read_text())["rows"] if path.exists() else []
    new = {(row.operator, row.size): row for row in rows}
    merged = [new.pop((old["operator"], old["size"]), old) for old in kept] + list(new.values())
    path.write_text(console.to_json({"machine": machine_name(), "rows": merged}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = sorted({case.operator for case in CASES})
    parser.add_argument("--names", nargs="+", choices=names, default=names, metavar="OPERATOR", help=", ".join(names))
    parser.add_argument("--turns", type=int, default=25)
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    rows = []
    with torch.inference_mode():
        for case in CASES:
            if case.operator in args.names:
                rows.append(measure(case, args.turns))
                show(rows[-1:])
    store(args.output, rows)
    show(rows)


if __name__ == "__main__":
    main()
