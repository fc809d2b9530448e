"""Speed of two revisions of this project on the same weights: each compiles the model, then they run alternately.

git worktree add ../before REVISION
python benchmarks/revisions.py --before ../before --folder build/smollm2-q4f16_1 --threads 1 2
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mlc_evaluation.machine_limits import machine_name

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"

WORKER = """
import json, sys, time
from mlc_runtime import LLM
folder, library, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
llm = LLM(folder, library, threads)
session = llm.new_session()
print("ready", flush=True)
for line in sys.stdin:
    prompt, steps = json.loads(line)
    ids = [1 + 7 * i % 1000 for i in range(prompt)]
    session.reset()
    begin = time.perf_counter()
    session.prefill(ids)
    token = session.sample()
    prefilled = time.perf_counter()
    for _ in range(steps):
        session.decode_step(token)
        token = session.sample()
    print(json.dumps([prompt / (prefilled - begin), steps / (time.perf_counter() - prefilled)]), flush=True)
"""


@dataclass(frozen=True)
class Cell:
    """Medians in tokens per second; ratio: after / before."""

    threads: int
    prompt_tokens: int
    prefill_before: float
    prefill_after: float
    prefill_ratio: float
    decode_before: float
    decode_after: float
    decode_ratio: float


class Worker:
    """One revision with the model loaded, in its own process."""

    def __init__(self, tree: Path, folder: Path, library: Path, threads: int):
        command = [sys.executable, "-c", WORKER, str(folder), str(library), str(threads)]
        self.process = subprocess.Popen(command, cwd=tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer()

    def measure(self, prompt: int, steps: int) -> tuple[float, float]:
        assert self.process.stdin is not None
        print(json.dumps([prompt, steps]), file=self.process.stdin, flush=True)
        prefill, decode = json.loads(self._answer())
        return prefill, decode

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def close(self) -> None:
        self.process.communicate()


def compile_with(tree: Path, folder: Path, library: Path) -> None:
    command = [sys.executable, "-m", "mlc_cli", "compile", str(folder), "-o", str(library)]
    subprocess.run(command, cwd=tree, check=True, capture_output=True)


def run(trees: Sequence[Path], folder: Path, threads: int, prompts: Sequence[int], repeat: int) -> list[Cell]:
    with tempfile.TemporaryDirectory() as temporary:
        libraries = [Path(temporary) / f"{i}.so" for i in range(len(trees))]
        for tree, library in zip(trees, libraries, strict=True):
            compile_with(tree, folder, library)
        workers = [Worker(tree, folder, library, threads) for tree, library in zip(trees, libraries, strict=True)]
        cells = [cell_of(workers, threads, prompt, repeat) for prompt in prompts]
        for worker in workers:
            worker.close()
    return cells


def cell_of(workers: Sequence[Worker], threads: int, prompt: int, repeat: int) -> Cell:
    """The speed of two workers in turns."""
    steps = 32
    for worker in workers:
        worker.measure(min(prompt, 32), 4)
    samples = [[worker.measure(prompt, steps) for worker in workers] for _ in range(repeat)]
    before, after = ([statistics.median(s[i][k] for s in samples) for k in (0, 1)] for i in (0, 1))
    ratios = [statistics.median(s[1][k] / s[0][k] for s in samples) for k in (0, 1)]
    return Cell(threads, prompt, before[0], after[0], ratios[0], before[1], after[1], ratios[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the other revision")
    parser.add_argument("--folder", type=Path, required=True, help="a model folder with weights and configuration")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--prompts", type=int, nargs="+", default=[128, 512, 2048])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--save", help="name of the result in benchmarks/results")
    args = parser.parse_args()
    trees, folder = [args.before.resolve(), ROOT], args.folder.resolve()
    cells = [c for threads in args.threads for c in run(trees, folder, threads, args.prompts, args.repeat)]
    for c in cells:
        prefill = f"prefill {c.prefill_before:7.1f} -> {c.prefill_after:7.1f} ({c.prefill_ratio:.2f})"
        decode = f"decode {c.decode_before:6.1f} -> {c.decode_after:6.1f} ({c.decode_ratio:.2f})"
        print(f"{c.threads} threads, prompt {c.prompt_tokens:5}: {prefill}, {decode}")
    if args.save:
        result = {"machine": machine_name(), "folder": folder.name, "cells": [asdict(c) for c in cells]}
        (RESULTS / f"revisions-{args.save}.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
