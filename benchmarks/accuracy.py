"""Accuracy of quantized weights: Kullback-Leibler divergence from float32 on held-out text, and the size.

python benchmarks/accuracy.py MODEL_FOLDER --scratch DIR q4f16_1 q4f16_nl+calibration=auto llama.cpp:Q4_K_M+imatrix

A name is a scheme of this project followed by ``+`` and options of ``convert_weight``, or a type of llama.cpp or
ik_llama.cpp with its default mixture, ``+imatrix`` with an importance matrix. Weights are dequantized into
transformers' model, without quantized activations, so that only the weights differ. The text (``accuracy_texts``) is
read in parts of 512 tokens, each with an empty cache. Each row is saved when it is measured; existing rows are not
measured again.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from accuracy_peers import PeerWeights
from accuracy_reference import Accuracy, Reference
from accuracy_schemes import OurWeights
from accuracy_training import FACTS

RESULTS = Path(__file__).resolve().parent / "results"


class Record:
    """The results file of one model: facts about the model, and rows."""

    def __init__(self, path: Path):
        self._path = path
        held = json.loads(path.read_text()) if path.is_file() else {}
        self.about: dict[str, Any] = held.get("about", {})
        self.rows: list[dict[str, Any]] = held.get("rows", [])

    @property
    def names(self) -> set[str]:
        return {row["name"] for row in self.rows}

    def describe(self, about: dict[str, Any]) -> None:
        """Raises SystemExit if the existing rows are of another model or text."""
        for key in about if self.rows else ():
            if self.about.get(key) != about[key]:
                raise SystemExit(f"{self._path} has rows of another {key}; name another file with --output")
        self.about = about

    def add(self, result: Accuracy) -> None:
        self.rows.append(asdict(result))
        lines = ",\n".join(json.dumps(row) for row in self.rows)
        self._path.write_text(f'{{"about": {json.dumps(self.about)},\n"rows": [\n{lines}\n]}}\n')


def show(r: Accuracy) -> None:
    d = r.divergence
    print(
        f"{r.name}: {r.bits:.2f} bits ({r.megabytes:.1f} MB), KL {d.mean:.4f} +- {d.error:.4f}, p99 {d.p99:.3f}, "
        f"same token {d.same_top:.4f}, perplexity {r.perplexity:.3f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a folder with a float32 or 16-bit checkpoint of a Llama")
    parser.add_argument("names", nargs="+", metavar="SCHEME")
    parser.add_argument("--scratch", type=Path, required=True, help="files, and the peers' environments")
    parser.add_argument("--positions", type=int, default=50_176, help="rounded down to whole parts")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, help="default: results/accuracy-MODEL.json")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.scratch.mkdir(parents=True, exist_ok=True)
    record = Record(args.output or RESULTS / f"accuracy-{args.model.resolve().name}.json")
    reference = Reference(args.model, args.positions, args.scratch)
    facts = json.loads((args.model / FACTS).read_text())
    record.describe({**facts, "text_sha256": reference.text_sha256, "perplexity": reference.perplexity})
    with OurWeights(args.model, args.scratch) as ours:
        peers = PeerWeights(args.model, args.scratch, lambda: ours.calibration.squares)
        for name in [name for name in args.names if name not in record.names]:
            made = peers.weights(name) if ":" in name else ours.weights(name)
            result = reference.compare(name, made)
            show(result)
            record.add(result)


if __name__ == "__main__":
    main()
