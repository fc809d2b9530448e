"""Divergence of compiled libraries from a reference on real text: the accuracy cost of an option or a scheme.

python benchmarks/divergence.py --reference DIR:lib_exact.so DIR:lib.so ...

Prints the mean of KL(reference || other) over all positions, its 99 % quantile, the share of positions with the same
most likely token, and the perplexity. The text is Python's language reference (``pydoc_data.topics``), or a file, read
in parts, each with an empty cache.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from mlc_evaluation.perplexity import Divergence, divergence_of
from mlc_evaluation.scorers import log_softmax
from mlc_runtime import LLM
from mlc_toolchain.calibration import language_reference

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True)
class Measurement:
    """The measurement of one library. divergence: from the reference, with a standard error over parts."""

    name: str
    options: str
    positions: int
    divergence: Divergence
    perplexity: float


class Measured:
    """Sums over the parts of a text for one library."""

    def __init__(self, name: str, llm: LLM):
        self.name, self.llm = name, llm
        self.kl: list[np.ndarray] = []
        self.same: list[np.ndarray] = []
        self.nll: list[np.ndarray] = []

    def add(self, ids: list[int], log_p: np.ndarray, log_q: np.ndarray) -> None:
        """Add a part. log_p, log_q: log-probabilities float64 [len(ids), V] of the reference and of this library."""
        self.kl.append((np.exp(log_p) * (log_p - log_q)).sum(-1))
        self.same.append(log_p.argmax(-1) == log_q.argmax(-1))
        self.nll.append(-log_q[np.arange(len(ids) - 1), ids[1:]])

    def result(self) -> Measurement:
        """The measurement over the parts, which have equal lengths."""
        kl = np.concatenate(self.kl)
        return Measurement(
            name=self.name,
            options=str(self.llm.library.metadata.get("opt", "")),
            positions=len(kl),
            divergence=divergence_of(kl, np.concatenate(self.same), len(self.kl[0])),
            perplexity=float(np.exp(np.concatenate(self.nll).mean())),
        )


def open_llm(text: str, threads: int) -> LLM:
    """Open ``DIR`` or ``DIR:LIBRARY``."""
    folder, _, library = text.partition(":")
    return LLM(Path(folder), Path(library) if library else None, threads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reference", required=True, metavar="DIR[:LIBRARY]")
    parser.add_argument("others", nargs="+", metavar="DIR[:LIBRARY]")
    parser.add_argument("--text", type=Path, help="a file of text (default: Python's language reference)")
    parser.add_argument("--positions", type=int, default=8192, help="rounded down to whole parts")
    parser.add_argument("--part", type=int, default=512, help="tokens that are read from an empty cache")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, default=RESULTS / "divergence.json")
    args = parser.parse_args()
    reference = open_llm(args.reference, args.threads)
    text = args.text.read_text() if args.text else language_reference()
    ids = reference.tokenizer.encode(text, add_special_tokens=False)[: args.positions]
    measured = [Measured(other, open_llm(other, args.threads)) for other in args.others]
    for start in range(0, len(ids) - args.part + 1, args.part):
        part = ids[start : start + args.part]
        expected = log_softmax(reference.logits(part))
        for other in measured:
            other.add(part, expected, log_softmax(other.llm.logits(part)))
    results = [other.result() for other in measured]
    for r in results:
        d = r.divergence
        print(
            f"{r.name}: KL {d.mean:.5f} +- {d.error:.5f}, p99 {d.p99:.4f}, same token {d.same_top:.4f}, "
            f"perplexity {r.perplexity:.3f}, {r.positions} positions"
        )
    args.output.write_text(json.dumps([asdict(r) for r in results], indent=2) + "\n")


if __name__ == "__main__":
    main()
