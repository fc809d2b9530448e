"""Prefill and decode speed beside other engines: same checkpoint, same threads, in turns within one run.

    python benchmarks/against_peers.py --quick
    python benchmarks/against_peers.py --models llama-1.1b --schemes q4 --threads 2 --opt O3 "act=16"

Each engine is installed into an environment of its own below the scratch folder, and its files are made there, before
anything is measured. README.md describes the measurements and which ones are rejected.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

from peers.candidates import Candidates, Started
from peers.catalog import ENGINES, SCHEMES
from peers.cells import Cell, grid
from peers.figures import Limits, figure
from peers.report import markdown
from peers.results import RESULT, Group, Measured, load_or_new, save
from peers.sampling import Settings, take
from peers.shapes import LONGEST, MOST_SEQUENCES, SHAPES

from mlc_evaluation.machine_limits import machine_name

ROOT = Path(__file__).resolve().parents[1]
QUICK = {
    "models": ["smollm2"],
    "schemes": ["q4"],
    "threads": [1],
    "prompts": [128, 512],
    "depths": [128],
    "batches": [4],
}


def measured(
    model: str, scheme: str, threads: int, started: Mapping[str, Started], cells: Sequence[Cell], settings: Settings
) -> Iterator[Group]:
    """Yield the group so far after each cell; the machine's limits are measured before the first and after each."""
    limits, taken = Limits.measure(threads, scheme), []
    workers = {name: s.worker for name, s in started.items()}
    variants = {name: s.candidate.variant for name, s in started.items()}
    for cell in cells:
        print(f"{model} {scheme}, threads {threads}: {cell.title}", file=sys.stderr)
        taken.append((cell, take(cell, workers, settings)))
        limits = limits.or_better(Limits.measure(threads, scheme))
        figures = [
            Measured(c, {name: figure(c, t, SHAPES[model], variants[name], limits) for name, t in by_name.items()})
            for c, by_name in taken
        ]
        yield Group(
            model=model,
            scheme=scheme,
            threads=threads,
            read_bytes_per_s=limits.read_bytes_per_s,
            op_per_s=limits.op_per_s,
            others_limit=settings.others,
            steps=settings.steps,
            engines={name: s.about for name, s in started.items()},
            cells=figures,
        )


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
    args = parser.parse_args()
    if max([*args.prompts, *args.depths, args.batch_depth]) > LONGEST or max(args.batches, default=0) > MOST_SEQUENCES:
        parser.error(f"models are made for at most {LONGEST} tokens and {MOST_SEQUENCES} sequences")
    return args


def main() -> None:
    args = arguments()
    found = Candidates(args.scratch, args.engines, args.opt)
    groups = {(model, scheme): found.of(model, scheme) for model, scheme in product(args.models, args.schemes)}
    if args.prepare:
        return
    settings = Settings(repeats=args.repeats, seconds=args.seconds, others=args.others)
    cells = grid(args.prompts, args.depths, args.batches, args.batch_depth)
    result = load_or_new(args.output, machine_name())
    for ((model, scheme), candidates), threads in product(groups.items(), args.threads):
        with found.started(candidates, model, threads) as started:
            for group in measured(model, scheme, threads, started, cells, settings):
                result = result.with_group(group)
                save(result, args.output)
                args.output.with_suffix(".md").write_text(markdown(result))
    print(markdown(result))


if __name__ == "__main__":
    main()
