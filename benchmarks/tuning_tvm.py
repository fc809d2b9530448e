"""Run Apache TVM's MetaSchedule on a workload and time its fastest kernel, in an environment with apache-tvm.

    python benchmarks/tuning_tvm.py search softmax --trials 64 --folder build/tuning
    python benchmarks/tuning_tvm.py time softmax --folder build/tuning

``search`` writes FOLDER/softmax-tvm.so and softmax-tvm.json. ``time`` reads lines with a number of calls from standard
input, and answers each with the seconds per call. Builder and runner are in the search's process, because the worker
processes of TVM 0.25 did not answer within 300 s, and those of 0.27 end in a segmentation fault.
"""

from __future__ import annotations

import os

os.environ["TVM_NUM_THREADS"] = "1"  # read when tvm is imported

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tuning_workloads import WORKLOADS
from tvm import te
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

SECONDS_OF_A_MEASUREMENT = 0.02


def target(cpu: str) -> Target:
    return Target({"kind": "llvm", "mcpu": cpu, "num-cores": 1})


def arguments(name: str) -> list[Any]:
    """Random arguments of a workload; codes are random bits."""
    rng = np.random.default_rng(0)
    made = []
    for tensor in WORKLOADS[name](te):
        shape = tuple(int(size) for size in tensor.shape)
        values = (
            rng.standard_normal(shape, np.float32) if "float" in str(tensor.dtype) else rng.integers(0, 1 << 32, shape)
        )
        made.append(tvm.runtime.tensor(values.astype(str(tensor.dtype))))
    return made


def seconds_of(library: Any, values: list[Any], count: int) -> float:
    """The mean CPU time of ``count`` calls."""
    main = library["main"]
    main(*values)
    begin = time.thread_time()
    for _ in range(count):
        main(*values)
    return (time.thread_time() - begin) / count


@derived_object
class Builder(ms.builder.PyBuilder):
    """Compiles in this process; a library for each candidate, in a folder."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder, self.count = folder, 0

    def build(self, build_inputs: list[Any]) -> list[Any]:
        return [self._built(given) for given in build_inputs]

    def _built(self, given: Any) -> Any:
        self.count += 1
        path = f"{self.folder}/{self.count}.so"
        try:
            tvm.tirx.build(given.mod, target=given.target).export_library(path)
        except Exception as error:
            return ms.builder.BuilderResult(None, str(error))
        return ms.builder.BuilderResult(path, None)


@derived_object
class Future(ms.runner.PyRunnerFuture):
    """A future with an available result."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.found = result

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        return self.found


@derived_object
class Runner(ms.runner.PyRunner):
    """Times in this process (minimum of three); keeps the fastest library and the minimum after each trial."""

    def __init__(self, values: list[Any]) -> None:
        super().__init__()
        self.values, self.fastest = values, ""
        self.best: list[float] = []

    def run(self, runner_inputs: list[Any]) -> list[Any]:
        return [Future(self._timed(str(given.artifact_path))) for given in runner_inputs]

    def _timed(self, path: str) -> Any:
        library = tvm.runtime.load_module(path)
        once = seconds_of(library, self.values, 1)
        count = max(1, int(SECONDS_OF_A_MEASUREMENT / once))
        found = min(seconds_of(library, self.values, count) for _ in range(3))
        if not self.best or found < self.best[-1]:
            self.fastest = path
        self.best.append(min([found, *self.best[-1:]]))
        return ms.runner.RunnerResult([found], None)


def search(name: str, trials: int, cpu: str, model: str, folder: Path) -> None:
    """Search, and write the fastest kernel, the minimum seconds after each trial, and the seconds of the search."""
    func = te.create_prim_func(WORKLOADS[name](te)).with_attr("global_symbol", "main")
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        runner = Runner(arguments(name))
        ms.tune_tir(
            mod=tvm.IRModule({"main": func}),
            target=target(cpu),
            work_dir=scratch,
            max_trials_global=trials,
            num_trials_per_iter=min(16, trials),
            builder=Builder(scratch),
            runner=runner,
            cost_model=model,
            measure_callbacks=[ms.measure_callback.AddToDatabase(), ms.measure_callback.UpdateCostModel()],
            num_tuning_cores=1,
            seed=1,
        )
        processor = time.process_time()
        done = {"seconds": time.monotonic() - begin, "processor": processor, "best": runner.best}
        (folder / f"{name}-tvm.so").write_bytes(Path(runner.fastest).read_bytes())
    (folder / f"{name}-tvm.json").write_text(json.dumps(done))


def serve(name: str, folder: Path) -> None:
    """Time the fastest kernel as often as standard input asks for it."""
    library, values = tvm.runtime.load_module(str(folder / f"{name}-tvm.so")), arguments(name)
    for line in sys.stdin:
        print(seconds_of(library, values, int(line)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("search", "time"))
    parser.add_argument("name", choices=WORKLOADS)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--cpu", default="znver4", help="LLVM's name")
    parser.add_argument("--cost-model", default="xgb", choices=("xgb", "random", "mlp"))
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    if args.command == "search":
        search(args.name, args.trials, args.cpu, args.cost_model, args.folder)
    else:
        serve(args.name, args.folder)


if __name__ == "__main__":
    main()
