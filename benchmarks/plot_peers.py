"""The results of against_peers.py as plots: tokens per second by length of the prompt, depth and batch.

python benchmarks/plot_peers.py [RESULT.json]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot
from peers.cells import Cell, Kind
from peers.report import is_ours
from peers.results import RESULT, Group, load

_PANELS: tuple[tuple[str, Callable[[Cell], bool], Callable[[Cell], int]], ...] = (
    ("prefill: tokens of the prompt", lambda cell: cell.kind is Kind.PREFILL, lambda cell: cell.tokens),
    ("decode: tokens before", lambda cell: cell.kind is Kind.DECODE and cell.batch == 1, lambda cell: cell.tokens),
    ("decode: sequences", lambda cell: cell.kind is Kind.DECODE, lambda cell: cell.batch),
)


def plot(group: Group, path: Path) -> None:
    """Three panels with a line for each engine, as SVG."""
    figure, panels = pyplot.subplots(1, len(_PANELS), figsize=(15, 4.5), layout="constrained")
    for panel, (title, belongs, position) in zip(panels, _PANELS, strict=True):
        cells = [measured for measured in group.cells if belongs(measured.cell)]
        if title.endswith("sequences"):
            depth = max((m.cell.tokens for m in cells if m.cell.batch > 1), default=None)
            cells = [m for m in cells if m.cell.tokens == depth]
        for engine in group.engines:
            points = [(position(m.cell), m.figures[engine].tokens_per_s) for m in cells]
            _line(panel, engine, sorted((x, y) for x, y in points if y is not None))
        panel.set(xlabel=title, ylabel="tokens/s", ylim=(0, None))
        panel.grid(alpha=0.3)
    panels[0].legend()
    figure.suptitle(f"{group.model}, {group.scheme}, threads: {group.threads}")
    figure.savefig(path)
    pyplot.close(figure)


def _line(panel: Any, engine: str, points: list[tuple[int, float]]) -> None:
    if points:
        panel.plot(*zip(*points), marker="o", label=engine, linewidth=2.5 if is_ours(engine) else 1.2)


def main(path: Path) -> None:
    """Write a plot for each group beside the results."""
    for group in load(path).groups:
        plot(group, path.with_name(f"{path.stem}-{group.model}-{group.scheme}-{group.threads}.svg"))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else RESULT)
