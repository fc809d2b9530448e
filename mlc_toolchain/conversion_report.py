"""The report of a conversion, and its output as JSON or as a self-contained HTML page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import jinja2

from mlc_files import whole_file
from mlc_toolchain.conversion_plan import Conversion
from mlc_toolchain.kept_form import is_quantized_again
from mlc_toolchain.mixed_bits import MixtureRow
from mlc_toolchain.weight_stream import ErrorNorm, ParameterTask, relative

OUTLIER, SHOWN = 2, 3
"""Parameters with an error above OUTLIER times the median are reported, at most SHOWN of them."""

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


@dataclass(frozen=True)
class ConvertReport:
    """The result of ``convert_weight`` or ``preview``. peak_bytes: estimated memory beyond the interpreter's.

    relative_error: |w - w'| / |w| over the quantized parameters, measured on the first rows of each, or on all rows
    with a report file; worst_error: the largest of a parameter, worst_parameter. note: remarks on the checkpoint and on
    parameters with outlying errors. mixture: with --bits, the scheme of each range of layers.
    """

    output: str
    model_type: str
    quantization: str
    parameters: int
    tensors: int
    files: int
    output_bytes: int
    bits_per_parameter: float
    peak_bytes: int
    resumed_tensors: int = 0
    seconds: float = 0.0
    relative_error: float | None = None
    worst_error: float | None = None
    worst_parameter: str | None = None
    note: str = ""
    mixture: tuple[MixtureRow, ...] = ()


def report_of(
    conversion: Conversion,
    folder: Path,
    resumed: int = 0,
    seconds: float = 0.0,
    errors: Mapping[str, ErrorNorm] | None = None,
) -> ConvertReport:
    """Summarize a conversion. errors: quantization errors of its parameters, if measured."""
    output = conversion.output
    each = {name: relative([error]) for name, error in errors.items()} if errors else {}
    worst = max(each, key=lambda name: each[name], default=None)
    return ConvertReport(
        output=str(folder),
        model_type=conversion.model.model_type,
        quantization=conversion.scheme.name,
        parameters=output.source_elements,
        tensors=len(output.tensors),
        files=len(output.files) + len(output.index_names),
        output_bytes=output.nbytes,
        bits_per_parameter=output.bits_per_parameter,
        peak_bytes=conversion.peak_bytes,
        resumed_tensors=resumed,
        seconds=seconds,
        relative_error=relative(errors.values()) if errors else None,
        worst_error=each[worst] if worst else None,
        worst_parameter=worst,
        note="; ".join(filter(None, (_requantized(conversion), _outliers(each)))),
        mixture=conversion.mixture.rows if conversion.mixture else (),
    )


def _requantized(conversion: Conversion) -> str:
    """A remark on weights that are quantized in the checkpoint and will be requantized; empty if there are none."""
    again = [
        task
        for task in conversion.tasks
        if task.format and is_quantized_again(task.production.value, conversion.reader, task.format.scheme)
    ]
    name = conversion.scheme.name
    kept = f"weights are quantized in the checkpoint; groups that {name} cannot keep are quantized again"
    return f"{len(again)} {kept}" if again else ""


def _outliers(errors: Mapping[str, float]) -> str:
    """A remark that names the parameters with outlying errors."""
    lossy = [error for error in errors.values() if error]
    limit = OUTLIER * median(lossy) if lossy else 0.0
    names = [name for name, error in errors.items() if error > limit > 0]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    listed = f"{', '.join(names[:SHOWN])}{more}"
    return f"the error of {listed} is more than {OUTLIER} times the median" if names else ""


def reported(task: ParameterTask, errors: Mapping[str, ErrorNorm]) -> ReportedParameter:
    name = task.production.name
    error = relative([errors[name]]) if name in errors else 0.0
    return ReportedParameter(name, list(task.production.shape), task.nbytes, error)


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
