"""``tvm.meta_schedule``: schedule search for tensor functions; see ``mlc_compiler/tuning``.

sch = ms.tune_tir(mod=mod, target=target, config=ms.TuneConfig(max_trials_global=64), work_dir="tune")
database = ms.tir_integration.tune_tir(mod, target, "tune", max_trials_global=64)
sch = database.query_schedule(mod, target)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mlc_errors import MLCError, UnsupportedError

from .. import api
from ..ir.module import IRModule
from ..target import as_target
from ..tir.nodes import PrimFunc
from ..tir.schedule import Schedule
from ..tuning import database as stored
from ..tuning.program import default_space, tune_tasks
from ..tuning.record import Record
from ..tuning.search import Budget
from ..tuning.space import ScheduleFn, Space
from ..tuning.strategies import Evolution, RandomSearch, Strategy
from ..tuning.task import Task

_STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "evolutionary": Evolution,
    "replay-trace": RandomSearch,
    "replay-func": RandomSearch,
}
_DEFAULT_SPACE = "post-order-apply"


@dataclass(frozen=True)
class TuneConfig:
    """The number of candidates to try in total and per step, and the search strategy."""

    max_trials_global: int
    num_trials_per_iter: int = 64
    strategy: str = "evolutionary"


class Database:
    """The measured schedules stored in a folder."""

    def __init__(self, work_dir: str | Path):
        self._stored = stored.Database(work_dir)

    def __len__(self) -> int:
        return len(self._stored)

    def query_tuning_record(self, mod: Any, target: Any, workload_name: str = "main") -> Record | None:
        """The fastest trial of a function, or None."""
        return self._stored.best(_function(mod, workload_name), as_target(target))

    def query_schedule(self, mod: Any, target: Any, workload_name: str = "main") -> Schedule | None:
        """The fastest schedule of a function, applied to the module, or None."""
        record = self.query_tuning_record(mod, target, workload_name)
        return None if record is None else _applied(record, api.as_module(mod), workload_name)

    def query_ir_module(self, mod: Any, target: Any, workload_name: str = "main") -> IRModule | None:
        """The module with the fastest schedule of a function, or None."""
        found = self.query_schedule(mod, target, workload_name)
        return None if found is None else found.mod


def tune_tir(
    mod: IRModule | PrimFunc,
    target: Any,
    config: TuneConfig | None = None,
    *,
    work_dir: str | Path,
    max_trials_global: int | None = None,
    task_name: str | None = None,
    **options: Any,
) -> Any:
    """Tune the schedules of a module's tensor functions, or of ``task_name``.

    With a config (API of TVM's first releases), returns the schedule of ``task_name``, ``main`` or the only
    function; otherwise takes the options of ``tir_integration.tune_tir`` and returns its Database.
    """
    if config is None:
        if max_trials_global is None:
            raise MLCError("tune_tir: got neither config nor max_trials_global; expected one of them")
        return _tune_tir(mod, target, work_dir, max_trials_global, task_name=task_name, **options)
    chosen = {
        "task_name": task_name,
        "num_trials_per_iter": config.num_trials_per_iter,
        "strategy": config.strategy,
        **options,
    }
    found = _tune_tir(mod, target, work_dir, config.max_trials_global, **chosen)
    return found.query_schedule(mod, target, task_name or "main")


def _tune_tir(
    mod: IRModule | PrimFunc,
    target: Any,
    work_dir: str | Path,
    max_trials_global: int,
    *,
    max_trials_per_task: int | None = None,
    num_trials_per_iter: int = 64,
    space: Space | str = _DEFAULT_SPACE,
    strategy: str = "evolutionary",
    seed: int | None = None,
    task_name: str | None = None,
) -> Database:
    """Tune the schedules of all tensor functions of a module, or of one; trials are stored in ``work_dir``.

    space: a ScheduleFn, or the default: this compiler's rules and sketches. Times for a GPU that this machine does not
    have are predicted. Raises UnsupportedError for other spaces and strategies, and for targets whose candidates can be
    neither timed nor predicted.
    """
    if strategy not in _STRATEGIES:
        raise UnsupportedError(f"tune_tir: no strategy {strategy!r}; there are {', '.join(_STRATEGIES)}")
    if not isinstance(space, Space) and space != _DEFAULT_SPACE:
        raise UnsupportedError(f"tune_tir: no space {space!r}; expected a ScheduleFn or {_DEFAULT_SPACE!r}")
    machine, functions = as_target(target), api.as_module(mod).of_type(PrimFunc)
    chosen = functions if task_name is None else {(name := _name(functions, task_name)): functions[name]}
    tasks = [Task(name, func, machine) for name, func in chosen.items()]
    results = Database(work_dir)
    tune_tasks(
        tasks,
        results._stored,
        Budget(max_trials_per_task or max_trials_global, num_trials_per_iter, total=max_trials_global),
        space=space if isinstance(space, Space) else default_space(machine),
        strategy=_STRATEGIES[strategy],
        seed=seed or 0,
    )
    results._stored.close()
    return results


def _compile_tir(database: Database, mod: IRModule | PrimFunc, target: Any) -> Schedule | None:
    """The fastest schedule in a database, or None."""
    return database.query_schedule(mod, target)


def _function(mod: Any, name: str) -> PrimFunc:
    functions = api.as_module(mod).of_type(PrimFunc)
    return functions[_name(functions, name)]


def _name(functions: dict[str, PrimFunc], name: str) -> str:
    if name not in functions and len(functions) != 1:
        raise MLCError(f"no tensor function {name!r} in the module; it has {', '.join(functions) or 'none'}")
    return name if name in functions else next(iter(functions))


def _applied(record: Record, mod: IRModule, name: str) -> Schedule:
    sch = Schedule(mod, _name(mod.of_type(PrimFunc), name))
    record.trace.apply_to_schedule(sch)
    return sch


space_generator = SimpleNamespace(ScheduleFn=ScheduleFn)
tir_integration = SimpleNamespace(tune_tir=_tune_tir, compile_tir=_compile_tir)
database = SimpleNamespace(JSONDatabase=Database)
