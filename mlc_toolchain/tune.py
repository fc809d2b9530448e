"""The `tune` command as a function: search for faster schedules of a model's kernels and store them in a database."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from mlc_compiler.tuning.database import Database
from mlc_compiler.tuning.predict import MakeMeasuring, is_timed, measurer_for
from mlc_compiler.tuning.program import Outcome
from mlc_compiler.tuning.remote import Workers
from mlc_compiler.tuning.strategies import strategy_named
from mlc_errors import UsageError
from mlc_toolchain.compile import CompileOptions, check_options, source_of
from mlc_toolchain.progress import Progress, silent
from mlc_toolchain.tuning import check_tuning, seconds_of, tune_module


@dataclass(frozen=True)
class TuneOptions:
    """Options of ``tune``. compiling: the options for compiling the model, whose output is not written. database: a
    folder, created if missing. budget: a duration such as ``90s`` or ``10m``. strategy: one of STRATEGIES. workers:
    address of a Dask scheduler whose workers measure, as ``tcp://host:8786``; empty for this machine.
    """

    compiling: CompileOptions
    database: Path
    budget: str = "10m"
    strategy: str = "evolution"
    workers: str = ""


@dataclass(frozen=True)
class KernelGain:
    """The result of the search for a kernel. calls: in all functions of the model; times in microseconds per call.

    gain: speedup over the default schedule. failed: trials in this database that crashed, hung or were wrong. note:
    why the kernel was skipped.
    """

    kernel: str
    calls: int
    default_us: float | None
    best_us: float | None
    gain: float | None
    trials: int
    failed: int
    note: str = ""


@dataclass(frozen=True)
class TuneReport:
    """The result of ``tune``. target: as text. kernels: by time saved, largest first; those without a time last.

    predicted: whether the times are predictions for a GPU that this machine does not have.
    """

    target: str
    database: Path
    trials: int
    kernels: list[KernelGain]
    predicted: bool = False


def tune_model(options: TuneOptions, progress: Progress = silent) -> TuneReport:
    """Search for the duration of the budget. Raises MLCError for models that cannot be compiled or timed here.

    Times for a GPU that this machine does not have are predicted, and recorded as such.
    """
    seconds = seconds_of(options.budget)
    if seconds is None:
        raise UsageError(f"--budget: got {options.budget!r}; expected a time such as 90s or 10m")
    strategy_named(options.strategy)
    check_options(options.compiling)
    source = source_of(options.compiling)
    check_tuning(options.budget, source.machine, source.optimization)
    database = Database(options.database)
    with ExitStack() as stack:
        measuring: MakeMeasuring = measurer_for
        if options.workers:
            workers = Workers(options.workers)
            stack.callback(workers.close)
            measuring = workers.measurer
        outcomes = tune_module(
            *(source.exported.mod, source.machine, source.optimization, database, seconds),
            *(lambda: strategy_named(options.strategy), progress, measuring),
        )
    database.close()
    kernels = [_kernel(outcome) for outcome in sorted(outcomes, key=_saved, reverse=True)]
    trials, predicted = sum(k.trials for k in kernels), not options.workers and not is_timed(source.machine)
    return TuneReport(str(source.machine), options.database, trials, kernels, predicted)


def _saved(outcome: Outcome) -> tuple[bool, float]:
    """Sort key: whether there is a time, and the seconds saved over all calls."""
    if outcome.default_seconds is None or outcome.best_seconds is None:
        return outcome.best_seconds is not None, 0.0
    return True, outcome.task.calls * (outcome.default_seconds - outcome.best_seconds)


def _kernel(outcome: Outcome) -> KernelGain:
    return KernelGain(
        outcome.task.name,
        outcome.task.calls,
        _microseconds(outcome.default_seconds),
        _microseconds(outcome.best_seconds),
        None if outcome.gain is None else round(outcome.gain, 3),
        outcome.trials,
        outcome.failed,
        outcome.problem,
    )


def _microseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e6, 2)
