"""A roofline plot of kernels as one HTML file (Williams, Waterman and Patterson 2009)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from mlc_evaluation.benchmark import MachineLimits
from mlc_evaluation.profile import COLUMNS, KernelProfile, Profile

WIDTH, HEIGHT, MARGIN = 860, 480, 60
COLORS = {"prefill": "#1f6fb2", "decode": "#c2571a"}
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 14px/1.4 sans-serif; margin: 2em; max-width: 60em }} table {{ border-collapse: collapse }}
td, th {{ padding: 2px 10px; text-align: right; border-bottom: 1px solid #ddd }}
td:nth-child(-n+2), th:nth-child(-n+2) {{ text-align: left }}
</style></head><body><h1>{title}</h1>
<p>Operations per second over operations per byte, both on logarithmic scales. Lines: the limits of the machine,
measured in the same run. A circle's area is the kernel's share of the time of its function. Kernels whose operations
are not counted are in the table only.</p>
{plot}
<table><tr>{head}</tr>
{rows}
</table></body></html>
"""


def roofline_page(title: str, profile: Profile, limits: MachineLimits) -> str:
    """A self-contained HTML page with a roofline plot and a table."""
    head = "".join(f"<th>{name}</th>" for name in COLUMNS)
    rows = "\n".join(f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in k.row)}</tr>" for k in profile.kernels)
    plot = _plot([k for k in profile.kernels if k.operations], limits)
    return _PAGE.format(title=escape(f"{title}: kernels"), plot=plot, head=head, rows=rows)


def _plot(kernels: list[KernelProfile], limits: MachineLimits) -> str:
    peak = max(limits.operations, limits.integer_operations or 0.0)
    scale = _Scale(kernels, peak)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" font-size="12">',
        f'<rect x="{MARGIN}" y="{MARGIN}" width="{WIDTH - 2 * MARGIN}" height="{HEIGHT - 2 * MARGIN}" fill="none" '
        'stroke="#888"/>',
        *_ticks(scale),
        *_roofs(scale, limits),
        *(_circle(scale, k) for k in kernels),
        "</svg>",
    ]
    return "\n".join(parts)


class _Scale:
    """Logarithmic scales: operations per byte to the right, operations per second upwards."""

    def __init__(self, kernels: list[KernelProfile], peak: float):
        intensities = [(k.operations or 1) / k.nbytes for k in kernels] or [1.0]
        rates = [k.operations_per_second for k in kernels] or [1e9]
        self.left, self.right = _decades(min(*intensities, 0.1), max(*intensities, 100.0))
        self.bottom, self.top = _decades(min(*rates, 1e8), 2 * peak)

    def x(self, intensity: float) -> float:
        return MARGIN + (WIDTH - 2 * MARGIN) * (math.log10(intensity) - self.left) / (self.right - self.left)

    def y(self, rate: float) -> float:
        return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * (math.log10(rate) - self.bottom) / (self.top - self.bottom)


def _decades(low: float, high: float) -> tuple[int, int]:
    return math.floor(math.log10(low)), math.ceil(math.log10(high))


def _ticks(scale: _Scale) -> Iterator[str]:
    for exponent in range(scale.left, scale.right + 1):
        x, label = scale.x(10.0**exponent), f"{10.0**exponent:g}"
        yield f'<text x="{x:.0f}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">{label}</text>'
    for exponent in range(scale.bottom, scale.top + 1):
        rate = f"{10.0 ** (exponent - 9):g} G"
        yield f'<text x="{MARGIN - 6}" y="{scale.y(10.0**exponent):.0f}" text-anchor="end">{rate}</text>'
    yield f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">operations per byte</text>'
    yield f'<text x="{MARGIN}" y="{MARGIN - 12}">operations per second</text>'


def _roofs(scale: _Scale, limits: MachineLimits) -> Iterator[str]:
    """SVG lines: the memory limit up to the highest peak, and a horizontal line for each peak."""
    peaks = {"float32": limits.operations, "dot products of bytes": limits.integer_operations}
    right = 10.0**scale.right
    for name, peak in peaks.items():
        if peak:
            yield _line(scale, (peak / limits.read_bytes, peak), (right, peak))
            yield f'<text x="{WIDTH - MARGIN}" y="{scale.y(peak) - 5:.0f}" text-anchor="end">{name}</text>'
    highest = max(filter(None, peaks.values()))
    low = max(10.0**scale.left, 10.0**scale.bottom / limits.read_bytes)
    yield _line(scale, (low, low * limits.read_bytes), (highest / limits.read_bytes, highest))


def _line(scale: _Scale, start: tuple[float, float], end: tuple[float, float]) -> str:
    (x1, y1), (x2, y2) = start, end
    places = (scale.x(x1), scale.y(y1), scale.x(x2), scale.y(y2))
    return '<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="#333"/>'.format(*places)


def _circle(scale: _Scale, k: KernelProfile) -> str:
    x, y = scale.x((k.operations or 1) / k.nbytes), scale.y(k.operations_per_second)
    label = escape(f"{k.function} {k.kernel}: {k.seconds * 1e3:.3f} ms, {100 * k.share:.1f} %")
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{3 + 16 * math.sqrt(k.share):.1f}" fill="{COLORS[k.function]}" '
        f'fill-opacity="0.5"><title>{label}</title></circle>'
    )
