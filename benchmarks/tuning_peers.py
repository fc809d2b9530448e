"""Compare the fastest kernels of the search over schedules, Apache TVM's MetaSchedule, the default rules and torch.

    python benchmarks/tuning_peers.py --tvm PYTHON --trials 64 --names softmax gemv

PYTHON has apache-tvm, cloudpickle, xgboost and numpy installed. All run on one thread, on the same tensor expressions
(torch: its own functions, ``gemv`` with float32 weights). The fastest kernels are timed in turns at the end. The
minimum CPU time over all rounds is reported, since other programs affect the CPU time of one thread little.

Curves are the best seconds after each trial as the searches measured them, each with its own timer. Workloads that are
not measured are kept in the results file. The plot of the curves, an SVG file beside it, needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tuning_workloads import WORKLOADS

from mlc_cli import console
from mlc_compiler import te
from mlc_compiler.target import Target
from mlc_compiler.tuning.database import Database
from mlc_compiler.tuning.measure import Limits, Measurer, Ready
from mlc_compiler.tuning.processes import Processes
from mlc_compiler.tuning.program import default_space, tune_tasks
from mlc_compiler.tuning.search import Budget, Progress
from mlc_compiler.tuning.space import Candidate
from mlc_compiler.tuning.task import Task
from mlc_compiler.tuning.worker import seconds_of_call
from mlc_evaluation.machine_limits import machine_name

HERE = Path(__file__).resolve().parent
SECONDS_OF_A_ROUND = 0.02
MARKS = (1, 4, 8, 16, 32, 64)  # numbers of trials at which the best time is printed
Timer = Callable[[int], float]
"""Returns the mean seconds of the given number of calls."""


@dataclass(frozen=True)
class Found:
    """A workload. microseconds: per call, minimum over rounds, by contender.

    processor_seconds: CPU seconds of each search. curves: best microseconds after each trial, by search.
    """

    name: str
    trials: int
    microseconds: Mapping[str, float]
    processor_seconds: Mapping[str, float]
    curves: Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Searched:
    """A search: CPU seconds, and the best seconds after each trial from the first correct one on."""

    processor: float
    best: Sequence[float]


@dataclass(frozen=True)
class Result:
    """The workloads measured on a machine. cpu: LLVM's name."""

    machine: str
    cpu: str
    rows: list[Found]


def kept(path: Path, names: Sequence[str]) -> Result:
    """The result in a file without the workloads ``names``, which are measured again; empty for another machine."""
    result = Result(machine_name(), str(Target("cpu").cpu), [])
    saved = json.loads(path.read_text()) if path.exists() else {}
    if (saved.get("machine"), saved.get("cpu")) == (result.machine, result.cpu):
        result.rows.extend(Found(**row) for row in saved["rows"] if row["name"] not in names)
    return result


# -- ours ---------------------------------------------------------------------------------------------------------


def searched(task: Task, trials: int, database: Database) -> Searched:
    """Search in this process and its child processes."""
    begin, best = _processor_seconds(), list[float]()

    def report(done: Progress) -> None:
        if done.best is not None:
            best.append(done.best)

    tune_tasks([task], database, Budget(trials, step=8), report=report)
    return Searched(_processor_seconds() - begin, best)


def _processor_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def built(task: Task, database: Database, folder: Path, processes: Processes) -> dict[str, Timer]:
    """The default and the fastest schedule, compiled."""
    record, default = database.best(task.func, task.target), default_space(task.target).default(task)
    assert record is not None and default is not None
    candidates = [default, Candidate(record.schedule(task.workload).func, record.trace)]
    ready = Measurer(task, processes, folder, Limits()).build(candidates)
    return {
        name: _timer(each) for name, each in zip(("default", "best"), ready, strict=True) if isinstance(each, Ready)
    }


def _timer(ready: Ready) -> Timer:
    values = ready.arguments.load()
    return lambda count: seconds_of_call(ready.library, values, count)


# -- others -------------------------------------------------------------------------------------------------------


def torch_function(name: str) -> Callable[..., Any]:
    """torch's function for a workload."""
    functional = torch.nn.functional
    functions: dict[str, Callable[..., Any]] = {
        "softmax": lambda x: torch.softmax(x, -1),
        "layer-norm": lambda x, gamma, beta: functional.layer_norm(x, x.shape[-1:], gamma, beta),
        "attention": lambda q, k, v: functional.scaled_dot_product_attention(q[None], k[None], v[None]),
        "gemv": lambda x, w: x @ w.T,
        "convolution": lambda x, w: functional.conv2d(x, w, padding=1),
    }
    return functions.get(name, lambda a, b: torch.relu(a @ b))


def torch_arguments(task: Task) -> list[torch.Tensor]:
    values = [torch.from_numpy(a) for a in task.arguments()[:-1]]
    if task.name == "gemv":
        return [values[0], torch.randn(values[1].shape[0], values[0].shape[1])]
    if task.name == "convolution":
        x, w = values[0].permute(2, 0, 1)[None], values[1].permute(3, 2, 0, 1)
        return [x.contiguous(memory_format=torch.channels_last), w.contiguous(memory_format=torch.channels_last)]
    return values


def of_torch(task: Task) -> Timer:
    function, values = torch_function(task.name), torch_arguments(task)

    def seconds(count: int) -> float:
        with torch.inference_mode():
            function(*values)
            begin = time.thread_time()
            for _ in range(count):
                function(*values)
            return (time.thread_time() - begin) / count

    return seconds


def searched_by_tvm(python: Path, name: str, trials: int, folder: Path) -> Searched:
    """Search with TVM in a separate process, unless done before."""
    result = folder / f"{name}-tvm.json"
    if not result.exists():
        _tvm(python, "search", name, folder, "--trials", str(trials), "--cpu", str(Target("cpu").cpu)).communicate()
    found = json.loads(result.read_text())
    return Searched(found["processor"], found["best"])


def of_tvm(process: subprocess.Popen[str]) -> Timer:
    assert process.stdin is not None and process.stdout is not None
    to, reply = process.stdin, process.stdout

    def seconds(count: int) -> float:
        to.write(f"{count}\n")
        to.flush()
        return float(reply.readline())

    return seconds


def _tvm(python: Path, command: str, name: str, folder: Path, *options: str) -> subprocess.Popen[str]:
    script = [str(python), str(HERE / "tuning_tvm.py"), command, name, "--folder", str(folder), *options]
    return subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


# -- side by side -------------------------------------------------------------------------------------------------


def least(timers: Mapping[str, Timer], rounds: int) -> dict[str, float]:
    """Microseconds per call of each timer, the minimum over rounds, measured in turns."""
    counts = {name: max(1, int(SECONDS_OF_A_ROUND / timer(1))) for name, timer in timers.items()}
    found = [{name: timer(counts[name]) for name, timer in timers.items()} for _ in range(rounds)]
    return {name: min(each[name] for each in found) * 1e6 for name in timers}


def compared(name: str, python: Path | None, trials: int, rounds: int, folder: Path) -> Found:
    """Run both searches of a workload, and time the fastest kernels in turns."""
    target = Target({**Target("cpu").export(), "num-cores": 1})
    task = Task(name, te.create_prim_func(WORKLOADS[name](te)), target)
    database, scratch = Database(), folder / name
    scratch.mkdir(parents=True, exist_ok=True)
    searches = {"ours": searched(task, trials, database)}
    with Processes(1) as processes, ExitStack() as stack:
        timers = built(task, database, scratch, processes) | {"torch": of_torch(task)}
        if python is not None:
            searches["tvm"] = searched_by_tvm(python, name, trials, folder)
            child = stack.enter_context(_tvm(python, "time", name, folder))
            stack.callback(child.kill)
            timers["tvm"] = of_tvm(child)
        curves = {search: [seconds * 1e6 for seconds in found.best] for search, found in searches.items()}
        processor = {search: found.processor for search, found in searches.items()}
        return Found(name, trials, least(timers, rounds), processor, curves)


def show(rows: list[Found]) -> None:
    """Print microseconds, the speedup of the best, and CPU seconds of the searches."""
    contenders = ("default", "best", "tvm", "torch")
    columns = ("workload", *contenders, "tvm / best", "torch / best", "search, s", "tvm's, s")
    console.table(columns, [_row(row, contenders) for row in rows])


def _row(row: Found, contenders: tuple[str, ...]) -> list[object]:
    found, spent = row.microseconds, row.processor_seconds
    times = [f"{found[c]:.1f}" if c in found else "-" for c in contenders]
    ratios = [f"{found[c] / found['best']:.2f}" if c in found else "-" for c in ("tvm", "torch")]
    return [row.name, *times, *ratios, *(f"{spent[c]:.0f}" if c in spent else "-" for c in ("ours", "tvm"))]


def show_curves(rows: list[Found]) -> None:
    """Print the best microseconds by number of trials."""
    marks = [mark for mark in MARKS if any(mark <= len(curve) for row in rows for curve in row.curves.values())]
    table = [
        [row.name, search, *(_at(curve, mark) for mark in marks)]
        for row in rows
        for search, curve in row.curves.items()
    ]
    console.table(("workload", "search", *map(str, marks)), table)


def _at(curve: Sequence[float], mark: int) -> str:
    return f"{curve[mark - 1]:.1f}" if mark <= len(curve) else "-"


def plot(result: Result, path: Path) -> None:
    """Draw the curves as SVG, a panel for each workload."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    pyplot.rcParams["svg.fonttype"] = "none"  # text stays text
    columns = 4
    figure, panels = pyplot.subplots(-(-len(result.rows) // columns), columns, figsize=(15, 7), layout="constrained")
    for panel, row in zip(panels.flat, result.rows):
        for search, curve in row.curves.items():
            panel.step(range(1, len(curve) + 1), curve, where="post", label=search)
        panel.set(title=row.name, xlabel="trials", ylabel="best, microseconds", yscale="log")
        panel.legend()
    for panel in panels.flat[len(result.rows) :]:
        panel.axis("off")
    figure.suptitle(f"{result.machine}, {result.cpu}, one thread")
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--tvm", type=Path, help="a Python interpreter with apache-tvm")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--folder", type=Path, default=HERE.parent / "build" / "tuning", help="what TVM has found")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "tuning_peers.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    result = kept(args.output, args.names)
    for name in args.names:
        result.rows.append(compared(name, args.tvm, args.trials, args.rounds, args.folder))
        show(result.rows[-1:])
        args.output.write_text(console.to_json(result) + "\n")
    show(result.rows)
    show_curves(result.rows)
    plot(result, args.output.with_suffix(".svg"))


if __name__ == "__main__":
    main()
