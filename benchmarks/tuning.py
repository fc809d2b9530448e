"""The search over schedules: best time against trials, beside the default rule.

    python benchmarks/tuning.py --trials 64 --names matmul-128 softmax --strategies random evolution beam

Every candidate is compared with the plain loops before its time counts. After the search, the default and the fastest
candidates are timed once more by turns; the gain is of these times.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from float_matmul import product_relu

from mlc_cli import console
from mlc_compiler import te
from mlc_compiler.ir import expr as ir
from mlc_compiler.relax.ops import get_operator
from mlc_compiler.target import Target
from mlc_compiler.tir.nodes import PrimFunc
from mlc_compiler.tuning.database import Database
from mlc_compiler.tuning.program import tune_tasks
from mlc_compiler.tuning.search import Budget, Progress
from mlc_compiler.tuning.strategies import STRATEGIES, strategy_named
from mlc_compiler.tuning.task import Task

RESULTS = Path(__file__).resolve().parent / "results" / "tuning.json"
ROWS, COLUMNS = 512, 1024  # of softmax and of layer norm
IMAGE, CHANNELS = 56, 64
MARKS = (1, 4, 8, 16, 32, 64, 128, 256, 512)  # numbers of trials at which the best time is reported


@dataclass(frozen=True)
class Curve:
    """One search. microseconds: of a call, best of so many trials; settled: default and best, by turns at the end."""

    name: str
    strategy: str
    microseconds: dict[int, float]
    settled: tuple[float, float] | None
    failed: int
    seconds: float


# -- workloads ----------------------------------------------------------------------------------------------------


def of_rows(operator: Callable[..., Any], *vectors: str, **attributes: Any) -> PrimFunc:
    """An operator on float32 [ROWS, COLUMNS] and vectors of [COLUMNS]."""
    operands = [te.placeholder((ROWS, COLUMNS), "float32", "x")]
    operands += [te.placeholder((COLUMNS,), "float32", name) for name in vectors]
    return te.create_prim_func([*operands, operator(*operands, **attributes)])


def convolution() -> PrimFunc:
    """3 x 3, float32 [IMAGE, IMAGE, CHANNELS] with a border of zeros."""
    x = te.placeholder((IMAGE, IMAGE, CHANNELS), "float32", "x")
    w = te.placeholder((3, 3, CHANNELS, CHANNELS), "float32", "w")

    def bordered(i: ir.Var, j: ir.Var, c: ir.Var) -> ir.PrimExpr:
        inside = ir.logical_and(i >= 1, i <= IMAGE, j >= 1, j <= IMAGE)
        return te.if_then_else(inside, x[i - 1, j - 1, c], 0.0)

    border = te.compute((IMAGE + 2, IMAGE + 2, CHANNELS), bordered, name="border")
    a, b, c = te.reduce_axis(3, "a"), te.reduce_axis(3, "b"), te.reduce_axis(CHANNELS, "c")
    y = te.compute(
        (IMAGE, IMAGE, CHANNELS),
        lambda i, j, o: te.sum(border[i + a, j + b, c] * w[a, b, c, o], axis=(a, b, c)),
        name="y",
    )
    return te.create_prim_func([x, w, y])


WORKLOADS: dict[str, Callable[[], PrimFunc]] = {
    "matmul-128": lambda: te.create_prim_func(product_relu(te, 128)),
    "matmul-1024": lambda: te.create_prim_func(product_relu(te, 1024)),
    "softmax": lambda: of_rows(get_operator("nn.softmax").te, axis=-1),
    "layer-norm": lambda: of_rows(get_operator("nn.layer_norm").te, "gamma", "beta", axes=(-1,)),
    "convolution": convolution,
}


# -- searches -----------------------------------------------------------------------------------------------------


def search(name: str, strategy: str, trials: int, target: Target, seed: int) -> Curve:
    """One search of this project."""
    best: list[float | None] = []

    def report(done: Progress) -> None:
        best.append(done.best)

    begin, task = time.monotonic(), Task(name, WORKLOADS[name](), target)
    budget = Budget(trials, step=8)
    (found,) = tune_tasks(
        [task], Database(), budget, strategy=lambda: strategy_named(strategy), seed=seed, report=report
    )
    settled = None
    if found.default_seconds is not None and found.best_seconds is not None:
        settled = found.default_seconds * 1e6, found.best_seconds * 1e6
    return Curve(name, strategy, _at_marks(best), settled, found.failed, time.monotonic() - begin)


def _at_marks(best: list[float | None]) -> dict[int, float]:
    marks = [mark for mark in MARKS if mark < len(best)] + [len(best)]
    return {mark: found * 1e6 for mark in marks if (found := best[mark - 1]) is not None}


# -- the report ---------------------------------------------------------------------------------------------------


def show(curves: list[Curve]) -> None:
    """Print the best microseconds after so many trials, and the gain over the default."""
    marks = sorted({mark for curve in curves for mark in curve.microseconds})
    columns = ("workload", "strategy", *map(str, marks), "default", "best", "gain", "failed", "seconds")
    console.table(columns, [_row(curve, marks) for curve in curves])


def _row(curve: Curve, marks: list[int]) -> list[object]:
    at = [f"{curve.microseconds[mark]:.1f}" if mark in curve.microseconds else "-" for mark in marks]
    default, best = curve.settled or (None, None)
    settled = [f"{default:.1f}", f"{best:.1f}", f"{default / best:.2f}"] if default and best else ["-", "-", "-"]
    return [curve.name, curve.strategy, *at, *settled, curve.failed, f"{curve.seconds:.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=["evolution"])
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    target, curves = Target("cpu"), []
    for name in args.names:
        for strategy in args.strategies:
            curves.append(search(name, strategy, args.trials, target, args.seed))
            show(curves[-1:])
    show(curves)
    args.output.write_text(console.to_json({"cpu": target.cpu, "curves": curves}) + "\n")


if __name__ == "__main__":
    main()
