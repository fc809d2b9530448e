"""Write the report of a conversion: JSON, or a self-contained HTML page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from mlc_files import whole_file

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ title }}</title><style>
body { font: 14px/1.4 sans-serif; margin: 2em; max-width: 60em } table { border-collapse: collapse }
td, th { padding: 2px 10px; text-align: right; border-bottom: 1px solid #ddd }
td:first-child, th:first-child { text-align: left } .bar { background: #1f6fb2; height: 8px }
</style></head><body><h1>{{ title }}</h1>
<table>{% for name, value in summary %}<tr><th>{{ name }}</th><td>{{ value }}</td></tr>
{% endfor %}</table>
<h2>Parameters, the largest error first</h2>
<p>The error is |w - w'| / |w| over all elements of a parameter, w' being what its codes stand for.</p>
<table><tr><th>name</th><th>shape</th><th>bytes</th><th>error</th><th></th></tr>
{% for p in parameters %}<tr><td>{{ p.name }}</td><td>{{ p.shape | join(" x ") }}</td>
<td>{{ "{:,}".format(p.nbytes) }}</td>
<td>{{ "%.5f" | format(p.relative_error) if p.relative_error else "" }}</td>
<td><div class="bar" style="width: {{ (200 * p.relative_error / largest) | round | int }}px"></div></td></tr>
{% endfor %}</table></body></html>
"""


@dataclass(frozen=True)
class ReportedParameter:
    """A parameter of a conversion. nbytes: as stored. relative_error: |w - w'| / |w|; 0 if stored exactly."""

    name: str
    shape: list[int]
    nbytes: int
    relative_error: float


def write_report(path: Path, summary: Mapping[str, Any], parameters: Sequence[ReportedParameter]) -> None:
    """Write JSON, or an HTML page if the suffix of ``path`` is ``.html``."""
    with whole_file(path, durable=True) as file:
        file.write((_page if path.suffix == ".html" else _json)(summary, parameters).encode())


def _json(summary: Mapping[str, Any], parameters: Sequence[ReportedParameter]) -> str:
    detail = [
        {"name": p.name, "shape": p.shape, "bytes": p.nbytes, "relative_error": p.relative_error} for p in parameters
    ]
    return json.dumps({**summary, "parameters_detail": detail}, indent=2)


def _page(summary: Mapping[str, Any], parameters: Sequence[ReportedParameter]) -> str:
    worst_first = sorted(parameters, key=lambda p: -p.relative_error)
    largest = max((p.relative_error for p in parameters), default=0.0) or 1.0
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(_PAGE)
    return template.render(
        title=f"{summary['model_type']}, {summary['quantization']}",
        summary=[(name, value) for name, value in summary.items() if value not in (None, "")],
        parameters=worst_first,
        largest=largest,
    )
