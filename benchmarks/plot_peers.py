"""Plot the results of against_peers.py: tokens per second by prompt length, depth and batch size.

python benchmarks/plot_peers.py [RESULT.json]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import pyplot
from peers.cells import Kind
from peers.report import is_ours
from peers.results import RESULT, Group, Measured, load

matplotlib.use("svg")
matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text


def plot(group: Group, path: Path) -> None:
    """Three panels with a line for each engine, as SVG."""
    figure, panels = pyplot.subplots(1, 3, figsize=(15, 4.5), layout="constrained")
    titles = ("prefill: tokens of the prompt", "decode: tokens before", "decode: sequences")
    for panel, title, cells in zip(panels, titles, (_prompts(group), _depths(group), _batches(group)), strict=True):
        for engine in group.engines:
            _line(panel, engine, cells)
        panel.set(xlabel=title, ylabel="tokens/s", ylim=(0, None))
        panel.grid(alpha=0.3)
    panels[0].legend()
    figure.suptitle(f"{group.model}, {group.scheme}, threads: {group.threads}")
    figure.savefig(path)
    pyplot.close(figure)


def _prompts(group: Group) -> dict[int, Measured]:
    return {m.cell.tokens: m for m in group.cells if m.cell.kind is Kind.PREFILL}


def _depths(group: Group) -> dict[int, Measured]:
    return {m.cell.tokens: m for m in group.cells if m.cell.kind is Kind.DECODE and m.cell.batch == 1}


def _batches(group: Group) -> dict[int, Measured]:
    """The cells of several sequences by batch size, at the depth at which they were measured."""
    decodes = [m for m in group.cells if m.cell.kind is Kind.DECODE]
    depth = next((m.cell.tokens for m in decodes if m.cell.batch > 1), None)
    return {m.cell.batch: m for m in decodes if m.cell.tokens == depth}


def _line(panel: Any, engine: str, cells: dict[int, Measured]) -> None:
    rates = {position: m.figures[engine].tokens_per_s for position, m in sorted(cells.items())}
    points = [(position, rate) for position, rate in rates.items() if rate is not None]
    if points:
        panel.plot(*zip(*points), marker="o", label=engine, linewidth=2.5 if is_ours(engine) else 1.2)


def main(path: Path) -> None:
    """Write a plot for each group beside the results."""
    for group in load(path).groups:
        plot(group, path.with_name(f"{path.stem}-{group.model}-{group.scheme}-{group.threads}.svg"))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else RESULT)
