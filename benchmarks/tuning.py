"""Measure the search over schedules: best time by number of trials, compared with the default rule.

    python benchmarks/tuning.py --trials 64 --names matmul-128 softmax --strategies random evolution beam

Results of every candidate are compared with those of unscheduled loops. After the search, the default and the fastest
candidates are timed again in turns; the gain is computed from these times.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

from tuning_workloads import WORKLOADS

from mlc_cli import console
from mlc_compiler import te
from mlc_compiler.target import Target
from mlc_compiler.tuning.database import Database
from mlc_compiler.tuning.program import tune_tasks
from mlc_compiler.tuning.search import Budget, Progress
from mlc_compiler.tuning.strategies import STRATEGIES, strategy_named
from mlc_compiler.tuning.task import Task

RESULTS = Path(__file__).resolve().parent / "results" / "tuning.json"
MARKS = (1, 4, 8, 16, 32, 64, 128, 256, 512)  # numbers of trials at which the best time is reported


@dataclass(frozen=True)
class Curve:
    """One search. microseconds: per call, best by number of trials; settled: default and best, in turns at the end."""

    name: str
    strategy: str
    microseconds: dict[int, float]
    settled: tuple[float, float] | None
    failed: int
    seconds: float


# -- searches -----------------------------------------------------------------------------------------------------


def search(name: str, strategy: str, trials: int, target: Target, seed: int) -> Curve:
    """One search of this project."""
    best: list[float | None] = []

    def report(done: Progress) -> None:
        best.append(done.best)

    begin, task = time.monotonic(), Task(name, te.create_prim_func(WORKLOADS[name](te)), target)
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
    """Print the best microseconds by number of trials, and the gain over the default."""
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
