"""A text plot of errors by layer, with bars on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mlc_evaluation.comparison import LayerError

WIDTH, LEAST = 40, 1e-8
MARKS = {True: "", False: "departs"}


def error_plot(layers: Sequence[LayerError]) -> str:
    """A line for each layer with its error and a bar; lengths are logarithmic from 1e-8 (0) to 1 (``WIDTH``)."""
    names = max((len(e.name) for e in layers), default=0)
    lines = (f"{e.name:<{names}}  {e.error:8.1e}  {_bar(e.error):<{WIDTH}}  {MARKS[e.agrees]}" for e in layers)
    return "\n".join(line.rstrip() for line in lines)


def _bar(error: float) -> str:
    share = 1 - math.log10(min(max(error, LEAST), 1.0)) / math.log10(LEAST)
    return "#" * round(WIDTH * share)
