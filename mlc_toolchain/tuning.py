"""Search over the schedules of a model's kernels, for `compile --tune` and `tune`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from mlc_compiler.ir.module import IRModule
from mlc_compiler.optimization import Optimization
from mlc_compiler.schedules.rule import Rule
from mlc_compiler.target import Target
from mlc_compiler.tuning import program, search
from mlc_compiler.tuning.database import Database
from mlc_compiler.tuning.measure import check_searched
from mlc_compiler.tuning.predict import MakeMeasuring, is_timed, measurer_for
from mlc_compiler.tuning.program import Outcome, tasks_of, tune_tasks
from mlc_compiler.tuning.strategies import Strategy
from mlc_compiler.tuning.tuned import Tuned
from mlc_errors import UsageError
from mlc_toolchain.progress import Progress, Step, silent

SIZES = {"seq_len": 64, "batch_size": 4, "num_seqs": 4, "num_tokens": 64}
"""Values of symbolic sizes for measurements: prompts of 64 tokens, four sequences."""
UNITS = {"s": 1, "m": 60, "h": 3600}
STEP = 4  # trials of a kernel before the next kernel is chosen
TRIALS = 1000  # maximum per kernel


def seconds_of(text: str) -> float | None:
    """Parse a duration such as ``90s``, ``10m`` or ``1.5h`` to seconds; None for any other text."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    return float(found[1]) * UNITS[found[2]] if found else None


def check_tuning(text: str, target: Target, optimization: Optimization) -> None:
    """Raises MLCError for a ``--tune`` that is neither a duration nor a database, or that is not supported."""
    if not text:
        return
    if not optimization.schedules:
        raise UsageError("--tune: schedules are off", hint="leave out --opt O0 or O1")
    if seconds_of(text) is not None:
        check_searched(target)
    elif not Path(text).is_dir():
        raise UsageError(f"--tune: got {text!r}; expected a time such as 90s or 10m, or the folder of a database")


def first_rules(
    text: str, mod: IRModule, target: Target, optimization: Optimization, progress: Progress = silent
) -> tuple[Rule, ...]:
    """The schedule rule for ``--tune``: applies a database, or the results of a search of the given duration."""
    if not text:
        return ()
    seconds = seconds_of(text)
    database = Database(text if seconds is None else None)
    if seconds is not None:
        tune_module(mod, target, optimization, database, seconds, progress=progress)
    return (Tuned(database),)


def tune_module(
    mod: IRModule,
    target: Target,
    optimization: Optimization,
    database: Database,
    seconds: float,
    strategy: Callable[[], Strategy] = program.Evolution,
    progress: Progress = silent,
    measuring: MakeMeasuring = measurer_for,
) -> list[Outcome]:
    """Search the schedules of a module's kernels for ``seconds``. Raises as ``tune_tasks`` does."""
    tasks = tasks_of(mod, target, optimization, SIZES)
    begin = time.monotonic()
    unit = " predicted" if measuring is measurer_for and not is_timed(target) else ""

    def report(done: search.Progress) -> None:
        best = "-" if done.best is None else f"{done.best * 1e6:.1f} us{unit}"
        passed = min(int(time.monotonic() - begin), int(seconds))
        progress(Step("tune", passed, int(seconds), "s", detail=f"{done.task.name}: {done.trials} trials, best {best}"))

    progress(Step("tune", 0, int(seconds), "s", detail=f"{len(tasks)} kernels"))
    budget = search.Budget(TRIALS, STEP, seconds)
    outcomes = tune_tasks(tasks, database, budget, strategy=strategy, report=report, measuring=measuring)
    progress(Step("tune", int(seconds), int(seconds), "s"))
    return outcomes
