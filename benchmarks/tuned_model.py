"""Tune a model's kernels, and compare its speed with that of the default schedules, in turns.

    python benchmarks/tuned_model.py --folder build/smollm2-q4f16_1 --device cpu:x86-64-v3 --database build/db --save v3

One thread. The last turns are of the default library beside a copy of itself, which shows the noise.
"""

from __future__ import annotations

import argparse
import shutil
from dataclasses import dataclass
from pathlib import Path

from revisions import RESULTS, ROOT, Cell, Worker, cell_of

from mlc_cli import console
from mlc_evaluation.machine_limits import machine_name
from mlc_scratch import temporary_folder
from mlc_toolchain.compile import CompileOptions, compile_model
from mlc_toolchain.tune import KernelGain, TuneOptions, tune_model


@dataclass(frozen=True)
class Result:
    """cells: default (before) and tuned (after) by prompt length; noise: default and its copy. kernels: tuned ones."""

    machine: str
    model: str
    target: str
    budget: str
    cells: list[Cell]
    noise: list[Cell]
    kernels: list[KernelGain]


def compared(folder: Path, libraries: tuple[Path, Path], prompts: list[int], repeat: int) -> list[Cell]:
    """Speed of two libraries in turns, with one thread."""
    workers = [Worker(ROOT, folder, library, 1) for library in libraries]
    cells = [cell_of(workers, 1, prompt, repeat) for prompt in prompts]
    for worker in workers:
        worker.close()
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="a model folder with weights and configuration")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--budget", default="10m")
    parser.add_argument("--database", type=Path, required=True)
    parser.add_argument("--prompts", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--save", required=True, help="name of the result in benchmarks/results")
    args = parser.parse_args()
    device, folder = f"{args.device} -num-cores=1", args.folder.resolve()
    report = tune_model(TuneOptions(CompileOptions(folder, Path("lib.so"), device), args.database, args.budget))
    tuned = [kernel for kernel in report.kernels if kernel.gain is not None]
    console.table(["kernel", "calls", "gain", "trials"], [[k.kernel, k.calls, k.gain, k.trials] for k in tuned])
    with temporary_folder("tuned") as scratch:
        default, copy, best = (scratch / f"{name}.so" for name in ("default", "copy", "best"))
        compile_model(CompileOptions(folder, default, device))
        compile_model(CompileOptions(folder, best, device, tune=str(args.database)))
        shutil.copy(default, copy)
        cells = compared(folder, (default, best), args.prompts, args.repeat)
        noise = compared(folder, (default, copy), args.prompts, args.repeat)
    for name, found in (("tuned / default", cells), ("default / itself", noise)):
        for c in found:
            print(f"{name}, prompt {c.prompt_tokens}: prefill {c.prefill_ratio:.3f}, decode {c.decode_ratio:.3f}")
    result = Result(machine_name(), folder.parent.name, device, args.budget, cells, noise, tuned)
    (RESULTS / f"tuned-{args.save}.json").write_text(console.to_json(result) + "\n")


if __name__ == "__main__":
    main()
