"""Plots as image files, drawn by matplotlib (an optional dependency)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlc_errors import ResourceError, UsageError
from mlc_files import check_writable

if TYPE_CHECKING:
    from mlc_evaluation.comparison import Comparison
    from mlc_toolchain.tune import KernelGain

BAR_INCHES = 0.25
LEAST_ERROR = 1e-8
SUFFIXES = (".png", ".svg", ".pdf")


def check_plot(path: Path) -> None:
    """Raises ResourceError if matplotlib is missing, MLCError if the file cannot be written; called before the work."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"--plot {path}: got {path.suffix or 'no suffix'!r}; expected one of {', '.join(SUFFIXES)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ResourceError("--plot needs matplotlib", hint="pip install matplotlib") from None
    check_writable(path, "the plot")


def draw_gains(kernels: Sequence[KernelGain], target: str, path: Path) -> None:
    """Draw a bar chart of the speedups that a search found, for the kernels that were measured."""
    measured = [k for k in kernels if k.gain is not None]
    figure, axes = _bars([k.kernel for k in measured], [k.gain or 0.0 for k in measured])
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xlabel(f"times as fast as by default, {target}")
    figure.savefig(path)


def draw_errors(comparison: Comparison, path: Path) -> None:
    """Draw a bar chart of the layers' errors on a logarithmic scale, with a line at the tolerance."""
    layers = comparison.layers
    figure, axes = _bars([e.name for e in layers], [max(e.error, LEAST_ERROR) for e in layers])
    for bar, layer in zip(axes.patches, layers):
        bar.set_color("tab:blue" if layer.agrees else "tab:red")
    axes.set_xscale("log")
    axes.set_xlim(LEAST_ERROR, max(1.0, *(e.error for e in layers)))
    axes.axvline(comparison.tolerance, color="black", linewidth=0.8)
    axes.set_xlabel("error, as a share of the tensor's norm; the line is the tolerance")
    figure.savefig(path)


def _bars(names: Sequence[str], values: Sequence[float]) -> tuple[Any, Any]:
    """A figure with a horizontal bar for each name, the first one on top. Names may repeat."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 1 + BAR_INCHES * len(names)), layout="constrained")
    axes.barh(range(len(names)), values, tick_label=names)
    axes.invert_yaxis()
    return figure, axes
