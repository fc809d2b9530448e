"""Prefill and decode speed beside other engines: same checkpoint, same threads, in turns within one run.

    python benchmarks/against_peers.py --quick
    python benchmarks/against_peers.py --models llama-1.1b --schemes q4 --threads 2 --opt O3 "O3;act=8"

Each engine is installed to an environment of its own below the scratch folder, and its files are made there, before
anything is measured. README.md says what is measured and what is rejected.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from machine_limits import machine_name
from peers.catalog import ENGINES, OURS, SCHEMES, Variant
from peers.cells import Cell, grid
from peers.client import Worker
from peers.environments import Environments
from peers.figures import Limits, figure
from peers.files import Files
from peers.report import markdown
from peers.results import RESULT, About, Group, Measured, load_or_new, save
from peers.sampling import EngineError, Settings, take
from peers.shapes import REFERENCE, SHAPES

ROOT = Path(__file__).resolve().parents[1]
QUICK = {
    "models": ["smollm2"],
    "schemes": ["q4"],
    "threads": [1],
    "prompts": [128, 512],
    "depths": [128],
    "batches": [4],
}


@dataclass(frozen=True)
class Candidate:
    """An engine with its files for a model and a scheme. options: of this project's compiler."""

    name: str
    python: Path
    worker: str
    path: Path
    variant: Variant
    options: str = ""


def prepare(args: argparse.Namespace) -> dict[tuple[str, str], list[Candidate]]:
    """Install the engines and make their files; the candidates of each model and scheme."""
    environments = Environments(args.scratch.resolve())
    files = Files(args.scratch.resolve(), environments)
    return {
        (model, scheme): list(_candidates(args, model, scheme, environments, files))
        for model, scheme in product(args.models, args.schemes)
    }


def _candidates(
    args: argparse.Namespace, model: str, scheme: str, environments: Environments, files: Files
) -> Iterator[Candidate]:
    for name in args.engines:
        engine = ENGINES[name]
        variant = engine.variants.get(scheme)
        if variant is None:
            continue
        if engine.environment is not None:
            python = environments.python(engine.environment)
            yield Candidate(name, python, engine.worker, files.path(model, variant), variant)
            continue
        for opt in args.opt:
            library = files.library(model, variant, opt)
            yield Candidate(f"{OURS} {opt}", Path(sys.executable), engine.worker, library, variant, opt)


def measure(
    model: str,
    scheme: str,
    threads: int,
    candidates: Sequence[Candidate],
    cells: Sequence[Cell],
    args: argparse.Namespace,
) -> Group:
    """One group: all engines loaded, the cells one after the other, the machine's limits before and after."""
    settings = Settings(repeats=args.repeats, seconds=args.seconds, others=args.others)
    limits = Limits.measure(threads, scheme)
    reference = json.loads((args.scratch / "models" / model / "checkpoint" / REFERENCE).read_text())
    with _workers(candidates, threads, args.scratch / "logs") as workers:
        agreements = {name: agreement(worker, reference) for name, worker in workers.items()}
        taken = []
        for cell in cells:
            print(f"{model} {scheme}, threads {threads}: {cell.title}", file=sys.stderr)
            taken.append(take(cell, workers, settings))
        limits = limits.or_better(Limits.measure(threads, scheme))
        variants = {c.name: c for c in candidates}
        return Group(
            model=model,
            scheme=scheme,
            threads=threads,
            read_bytes_per_s=limits.read_bytes_per_s,
            op_per_s=limits.op_per_s,
            others_limit=settings.others,
            steps=settings.steps,
            engines={name: _about(variants[name], worker, agreements[name]) for name, worker in workers.items()},
            cells=[
                Measured(
                    cell, {n: figure(cell, t, SHAPES[model], variants[n].variant, limits) for n, t in by_name.items()}
                )
                for cell, by_name in zip(cells, taken, strict=True)
            ],
        )


@contextmanager
def _workers(candidates: Sequence[Candidate], threads: int, logs: Path) -> Iterator[dict[str, Worker]]:
    """The engines that can be started; others are named on stderr."""
    with ExitStack() as stack:
        workers = {}
        for c in candidates:
            try:
                workers[c.name] = Worker(c.python, c.worker, c.path, threads, logs / f"{c.name}.log")
                stack.callback(workers[c.name].close)
            except EngineError as error:
                print(f"{c.name} does not start: {error}", file=sys.stderr)
        yield workers


def agreement(worker: Worker, reference: dict[str, list[int]]) -> int:
    """Positions of the reference's continuation at which an engine finds the same most likely token."""
    prompt, tokens = reference["prompt"], reference["tokens"]
    return sum(worker.first_token(prompt + tokens[:i]) == token for i, token in enumerate(tokens))


def _about(candidate: Candidate, worker: Worker, agreed: int) -> About:
    about = worker.about
    return About(candidate.variant.name, candidate.options, about.version, about.build, about.load_s, agreed)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few minutes: one model, scheme and thread, four cells")
    parser.add_argument(
        "--prepare", action="store_true", help="install the engines and make their files; measure nothing"
    )
    parser.add_argument("--scratch", type=Path, default=ROOT / "build" / "peers", help="environments, models, logs")
    parser.add_argument("--models", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--schemes", nargs="+", choices=SCHEMES, default=["q4", "q8", "f16"])
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--prompts", nargs="*", type=int, default=[128, 512, 2048, 8192], help="tokens")
    parser.add_argument("--depths", nargs="*", type=int, default=[0, 128, 4000, 8000], help="tokens before decoding")
    parser.add_argument("--batches", nargs="*", type=int, default=[1, 2, 4, 8, 16], help="sequences decoded together")
    parser.add_argument("--batch-depth", type=int, default=128, help="tokens before decoding, of batches")
    parser.add_argument("--opt", nargs="+", default=["O3"], help="--opt of this project's compiler, each an engine")
    parser.add_argument("--repeats", type=int, default=5, help="quiet samples of a cell")
    parser.add_argument("--seconds", type=float, default=60, help="after these, three quiet samples are enough")
    parser.add_argument("--others", type=float, default=0.1, help="processors that others may use in a quiet sample")
    parser.add_argument(
        "--output", type=Path, default=RESULT, help="JSON; its groups that are not measured now are kept"
    )
    quick, _ = parser.parse_known_args()
    if quick.quick:
        parser.set_defaults(**QUICK)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    candidates = prepare(args)
    if args.prepare:
        return
    cells = grid(args.prompts, args.depths, args.batches, args.batch_depth)
    result = load_or_new(args.output, machine_name())
    for (model, scheme), threads in product(candidates, args.threads):
        group = measure(model, scheme, threads, candidates[model, scheme], cells, args)
        result = result.with_group(group)
        save(result, args.output)
        args.output.with_suffix(".md").write_text(markdown(result))
    print(markdown(result))


if __name__ == "__main__":
    main()
