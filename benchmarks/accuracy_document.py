"""Write docs/accuracy.md from the results: python benchmarks/accuracy_document.py > docs/accuracy.md"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).resolve().parent / "results"
MODELS = {
    "off-grid": "accuracy_model.py CHECKPOINT build/off-grid",
    "small": "accuracy_small_model.py build/small",
}
"""Result folders, and the commands that create their models."""
BEST = "q4f16_nl+calibration=auto+method=gptq"
K_QUANTS = "llama.cpp:Q4_K_M"
ALIKE = 0.1  # bits per weight
HEAD = """# Accuracy of quantized weights

This page compares models with quantized weights with the float32 model: the Kullback-Leibler (KL) divergence of the
next token's distribution in nats (mean with standard error, and 99 % quantile), the share of positions where both have
the same most likely token, and the perplexity. `benchmarks/accuracy_document.py` writes it from
`benchmarks/results/accuracy-*.json`.

- Text: Newton's *Opticks*, a book of 1730 that the package apache-tvm-ffi contains, and descriptions of Python
  packages, in parts of 512 tokens, evenly from both. Calibration reads a different kind of text, Python's language
  reference, and training a third, docstrings.
- Standard errors assume that parts, not tokens, are independent. Errors of ratios are smaller, because both rows read
  the same parts.
- Weights are dequantized into transformers' model: activations are not quantized (for these see
  `benchmarks/divergence.py`), and everything is computed in float32.
  Bits per weight are those of the whole file, including norms and headers.
- Files of llama.cpp have its default mixture of types. Rows with "imatrix" have an importance matrix: the mean squares
  of inputs that `--calibration auto --method gptq` measures, in llama.cpp's format.
{importance}
- `--calibration auto` reads 2,048 tokens, and 8,192 with `--method gptq` or `--bits`. These two also read 4,096 tokens
  that the model writes, and error feedback adds 20 % of the mean diagonal to X^T X."""


DEFAULT = """## The default

If no scheme is named, checkpoints are converted to `q4f16_nl` with `--calibration auto`: less than a quarter of the
divergence of `q4f16_1` at the same size. `--method awq` reduces it by another 7 %, `--method gptq` by a
fifth. The former adds half of the conversion time; the latter takes several times as long, as does `--bits`. Use
`q4f16_1` for files that other engines read.

`q4f16_nl8_g16` has the same size and, both with `--method gptq`, three quarters of the divergence. On CPUs prompts take
a fifth longer, since each scale serves half as many products (`docs/performance.md`).

SmolLM2-135M in Q4_K_M takes 6.17 bits per weight: llama.cpp's K types need rows of a multiple of 256 weights, which
most of its matrices do not have, and llama.cpp stores these in 5 or 8 bits. A mixture of 4.6 bits that starts from 3
(`--quantization q3f16_nl8 --bits 4.6`) has no more divergence at three quarters of the size. It gives the rows of the
most frequent tokens in the head 6 bits, the others 4 to 5. At the size of Q4_K_M, `--bits 6.17` has about an eighth of
its divergence, and a sixth of that with an importance matrix.

The small model has rows of a multiple of 256. It was trained on little text of another kind, and its divergences are
small: it is less significant than SmolLM2."""


def importance() -> str:
    """How this project's mean squares of inputs agree with llama.cpp's."""
    found = json.loads((RESULTS / "importance.json").read_text())
    least, median = (found["correlation"][of] for of in ("least", "median"))
    lines = (
        f"- Over the same {found['tokens']:,} tokens of SmolLM2-135M-Instruct, mean squares of inputs measured here",
        "  with 8-bit weights, and those that llama.cpp computes with weights in F16, have a correlation of at least",
        f"  {least:.4f} in each of {found['matrices']} matrices, {median:.6f} in the median one",
        "  (`benchmarks/accuracy_importance.py`).",
    )
    return "\n".join(lines)


def section(folder: str, how: str) -> str:
    results = json.loads((RESULTS / f"accuracy-{folder}.json").read_text())
    rows = sorted(results["rows"], key=lambda r: (round(r["bits"], 2), -r["divergence"]["mean"]))
    settings = [f"--positions {rows[0]['positions']}", *(r["name"] for r in rows)]
    return "\n".join(
        [
            f"## {results['about']['title']}",
            "",
            *_facts(results["about"], rows[0]),
            "",
            "| weights | bits per weight | KL | 99 % | same token | perplexity |",
            "|---|---|---|---|---|---|",
            *map(_row, rows),
            "",
            *_comparisons({row["name"]: row for row in rows}),
            f"    python benchmarks/{how}",
            f"    python benchmarks/accuracy.py build/{folder} --scratch build/peers {' '.join(settings)}",
        ]
    )


def _facts(about: dict[str, Any], first: dict[str, Any]) -> list[str]:
    moved = about["moved"]
    grid = f" The median weight is {moved:.2f} steps of a 4-bit grid away from its place on it." if moved else ""
    return [
        f"- {about['parameters'] / 1e6:.1f} M parameters; {about['steps']} steps of training on {about['tokens']:,} "
        f"tokens took the loss from {about['first_loss']:.2f} to {about['last_loss']:.2f}.{grid}",
        f"- {first['positions']:,} positions; the perplexity in float32 is {about['perplexity']:.2f}.",
    ]


def _row(r: dict[str, Any]) -> str:
    d = r["divergence"]
    digits = 4 if d["mean"] > 0.01 else 6
    kl = f"{d['mean']:.{digits}f} ± {d['error']:.{digits}f}"
    shares = f"{d['p99']:.{digits - 2}f} | {100 * d['same_top']:.1f} % | {r['perplexity']:.2f}"
    return f"| {_title(r['name'])} | {r['bits']:.2f} | {kl} | {shares} |"


def _comparisons(rows: dict[str, dict[str, Any]]) -> list[str]:
    """The table of ratios of divergences between pairs of rows, and an empty line; nothing if there are no pairs."""
    by_size = sorted(rows, key=lambda name: rows[name]["bits"])
    search = "q4f16_nl+calibration=auto"
    pairs = [(search, "q4f16_1"), (BEST, "q4f16_1"), (BEST, search)]
    for mixture in (name for name in by_size if "+bits=" in name):
        alike = [name for name in by_size if ":" in name and abs(rows[name]["bits"] - rows[mixture]["bits"]) < ALIKE]
        pairs += [(mixture, other) for other in dict.fromkeys([*alike, K_QUANTS, f"{K_QUANTS}+imatrix"])]
    known = [_comparison(rows[name], rows[other]) for name, other in pairs if name in rows and other in rows]
    return ["| KL of | over that of | ratio |", "|---|---|---|", *known, ""] if known else []


def _comparison(row: dict[str, Any], other: dict[str, Any]) -> str:
    value, error = ratio(np.array(row["part_divergences"]), np.array(other["part_divergences"]))
    sides = " | ".join(f"{_title(r['name'])}, {r['bits']:.2f} bits" for r in (row, other))
    return f"| {sides} | {value:.2f} ± {error:.2f} |"


def ratio(numerators: np.ndarray, denominators: np.ndarray) -> tuple[float, float]:
    """The ratio of the means of two samples of the same parts [n], with its standard error (delta method)."""
    value = numerators.mean() / denominators.mean()
    spread = (numerators - value * denominators).std(ddof=1) / len(numerators) ** 0.5
    return float(value), float(spread / denominators.mean())


def _title(name: str) -> str:
    scheme, *options = name.split("+")
    if ":" in scheme:
        return " ".join([scheme.replace(":", " "), *(f"with {option}" for option in options)])
    return " ".join([f"`{scheme}`", *(f"`--{option.replace('=', ' ')}`" for option in options)])


def main() -> None:
    sections = [section(folder, how) for folder, how in MODELS.items()]
    print("\n\n".join([HEAD.format(importance=importance()), *sections, DEFAULT]))


if __name__ == "__main__":
    main()
