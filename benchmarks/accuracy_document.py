"""Writes docs/accuracy.md from the results: python benchmarks/accuracy_document.py > docs/accuracy.md"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results" / "accuracy.json"
HEAD = """# Accuracy of quantized weights

How far the distributions of the next token are from those of the float32 model: the Kullback-Leibler divergence in
nats, its mean with the standard error and its 99 % quantile, how often both have the same most likely token, and the
perplexity. Written by `benchmarks/accuracy_document.py` from `benchmarks/results/accuracy.json`.

- Model: SmolLM2-135M, whose tied embedding is a fifth of its weights. The weights at hand come from a file with 4 bits;
  `benchmarks/accuracy_model.py` adds to each a random number within half a step, so that they lie on no grid.
- Text: {positions} tokens of docstrings of Python's standard library, in parts of 512; perplexity in float32 is
  {perplexity:.2f}. Calibration reads another text, Python's language reference.
- Weights are dequantized into transformers' float32 model: activations are not quantized (for these see
  `benchmarks/divergence.py`). Files of llama.cpp have the mixture of types that it chooses, without an importance
  matrix. Its K types take rows of a multiple of 256, which most matrices of this model do not have; it stores these in
  5 or 8 bits.

| weights | bits per weight | KL | 99 % | same token | perplexity |
|---|---|---|---|---|---|"""
FOOT = """
    python benchmarks/accuracy_model.py CHECKPOINT build/off-grid
    python benchmarks/accuracy.py build/off-grid --scratch build/peers {names}"""


def row(r: dict[str, Any]) -> str:
    kl = f"{r['kl_mean']:.4f} ± {r['kl_standard_error']:.4f}"
    shares = f"{r['kl_p99']:.2f} | {100 * r['same_top']:.1f} % | {r['perplexity']:.2f}"
    return f"| {_title(r['name'])} | {r['bits']:.2f} | {kl} | {shares} |"


def _title(name: str) -> str:
    scheme, *options = name.split("+")
    if scheme.startswith("llama.cpp:"):
        return scheme.replace(":", " ")
    return " ".join([f"`{scheme}`", *(f"`--{option.replace('=', ' ')}`" for option in options)])


def main() -> None:
    results = sorted(json.loads(RESULTS.read_text()), key=lambda r: (r["bits"], -r["kl_mean"]))
    first = results[0]
    print(HEAD.format(positions=first["positions"], perplexity=first["perplexity_float32"]))
    print("\n".join(map(row, results)))
    print(FOOT.format(names=" ".join(r["name"] for r in results)))


if __name__ == "__main__":
    main()
