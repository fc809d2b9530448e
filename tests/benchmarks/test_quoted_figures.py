"""Figures that the documents quote are those of the committed results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
MODELS = {"SmolLM2-135M": "smollm2", "1.1 B Llama shape": "llama-1.1b"}
ENGINES = ("mlc O3", "llama.cpp", "openvino")


def table(document: str, after: str) -> list[list[str]]:
    """The cells of the first table after a text in a document, row by row without the header."""
    lines = (ROOT / document).read_text().partition(after)[2].splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|---"))
    rows = []
    for line in lines[first + 1 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def results(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def shown(value: float) -> str:
    """A figure with three significant digits, or rounded to an integer from 100 on."""
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}"


def beside_peers(model: str, threads: int) -> list[str]:
    """Tokens/s of each engine: prefill of 512 tokens, then decode after 128 tokens."""
    wanted = (model, "q4", threads)
    (group,) = (g for g in results("against_peers")["groups"] if (g["model"], g["scheme"], g["threads"]) == wanted)
    cells = {tuple(c["cell"].values()): c["figures"] for c in group["cells"]}
    kinds = [("prefill", 512, 1), ("decode", 128, 1)]
    return [shown(cells[kind][engine]["tokens_per_s"]) for kind in kinds for engine in ENGINES]


def beside_llama_cpp(model: str, threads: str, prompt: str) -> list[str]:
    """Tokens/s of prefill: ours, llama.cpp's and their ratio; then the same of decode."""
    suffix = "" if prompt == "128" else f"-{prompt}"
    ours, theirs = results(f"against_llama_cpp-{model}-q4f16_1-{threads}{suffix}")["speeds"]
    pairs = [(ours[kind], theirs[kind]) for kind in ("prefill", "decode")]
    return [text for a, b in pairs for text in (shown(a), shown(b), f"{a / b:.2f}")]


def test_the_readme():
    rows = table("README.md", "Tokens per second with 4-bit weights")
    assert len(rows) == 4
    for head, *figures in rows:
        model, threads = head.split(", ")
        assert figures == beside_peers(MODELS[model], int(threads.split()[0]))


def test_speed_beside_llama_cpp():
    rows = table("docs/performance.md", "Beside llama.cpp Q4_0 in one run")
    assert len(rows) == 6
    for head, *figures in rows:
        model, threads, prompt = head.split(", ")
        assert figures == beside_llama_cpp(MODELS[model], threads, prompt)


def test_products():
    rows = table("docs/performance.md", "Schedules of one's own")
    proofs = results("matmul")["proofs"]
    assert len(rows) == len(proofs) == 4
    for (_, reached, limit, share), proof in zip(rows, proofs, strict=True):
        assert reached == f"{proof['amount']:.1f} {proof['unit']}"
        assert limit.split(",")[0].removesuffix(f" {proof['unit']}") == f"{proof['limit']:.1f}"
        assert float(share) == pytest.approx(proof["amount"] / proof["limit"], abs=0.005)
