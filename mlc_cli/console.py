"""Output of commands: progress on stderr, results on stdout, as text or JSON. rich is imported only for terminals."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import math
import os
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from mlc_errors import UsageError

if TYPE_CHECKING:
    from rich.progress import TaskID

    from mlc_toolchain.progress import Progress, Step

SECONDS_BETWEEN_LINES = 10.0
_LIST_LIMIT = 12


@contextlib.contextmanager
def progress(as_json: bool = False) -> Iterator[Progress]:
    """A progress callback for the toolchain: bars on a terminal, lines elsewhere, nothing with --json."""
    if as_json:
        yield lambda step: None
    elif sys.stderr.isatty():
        with _Bars() as bars:
            yield bars
    else:
        yield Lines(sys.stderr)


@contextlib.contextmanager
def late_progress(seconds: float = 0.0) -> Iterator[Progress]:
    """The same, shown from the first step after ``seconds`` on."""
    begin = time.monotonic()
    shown: list[Progress] = []
    with contextlib.ExitStack() as stack:

        def report(step: Step) -> None:
            if not shown and time.monotonic() - begin >= seconds:
                shown.append(stack.enter_context(progress()))
            for display in shown:
                display(step)

        yield report


def show(report: Any, schema: str, as_json: bool = False, json_only: Container[str] = ()) -> None:
    """Print a report (a dataclass) as aligned `field  value` lines, or as JSON. json_only: fields for JSON only."""
    if as_json:
        write_json(schema, report)
    else:
        names = (field.name for field in dataclasses.fields(report))
        show_fields({name: getattr(report, name) for name in names if name not in json_only})


def show_fields(values: Mapping[str, Any]) -> None:
    """Print values as aligned `name  value` lines."""
    rows = [(name.replace("_", " "), _format(name, value)) for name, value in values.items()]
    width = max(len(name) for name, _ in rows)
    click.echo("\n".join(f"{name:<{width}}  {value}" for name, value in rows if value))


def write_json(schema: str, value: Any) -> None:
    """Print a dataclass or mapping as a JSON object. schema: name and version, see ``mlc_cli schema``."""
    click.echo(to_json(with_schema(schema, value)))


def write_line(schema: str, value: Any) -> None:
    """Print a JSON object on one line and flush it."""
    click.echo(json.dumps(with_schema(schema, value), ensure_ascii=False, allow_nan=False))
    sys.stdout.flush()


def with_schema(schema: str, value: Any) -> dict[str, Any]:
    """Convert a dataclass or mapping to JSON types, preceded by the name of its schema."""
    return {"schema": schema, **_plain(value)}


def to_json(value: Any) -> str:
    """Convert a dataclass, mapping or sequence to JSON text; paths become strings, non-finite numbers null."""
    return json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under column heads, columns padded to their widest cell, numbers to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells)]
    numeric = [all(_is_number(cell) for cell in column) for column in zip(*cells)] or [False] * len(widths)
    for row in [list(columns), *cells]:
        padded = [c.rjust(w) if right else c.ljust(w) for c, w, right in zip(row, widths, numeric)]
        click.echo("  ".join(padded).rstrip())


def open_streams() -> None:
    """Replace closed standard streams by the null device; print unencodable characters as question marks."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def standard_input() -> str:
    """The text piped to the command, empty without a pipe. Raises UsageError if it is not UTF-8."""
    if sys.stdin.isatty():
        return ""
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"byte 0x{error.object[error.start]:02x} at position {error.start}"
        raise UsageError(f"standard input is not UTF-8 text: {found}") from None


def note(text: str) -> None:
    """Print a remark to stderr, so that piped output has only the result."""
    click.echo(text, err=True)


def show_decisions() -> None:
    """Print the toolchain's log of its decisions to stderr, one line each."""
    import logging

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("mlc_toolchain")
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)


def format_bytes(count: float) -> str:
    """1536 -> '1.5 KB': decimal units, three significant digits."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def format_seconds(seconds: float) -> str:
    """0.0123 -> '12 ms', 3.21 -> '3.2 s', 125 -> '2 min 05 s'."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"


class Lines:
    """Progress for logs and pipes: a line every ten seconds, and one at the end of each stage."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic):
        self._stream = stream
        self._clock = clock
        self._stage: str | None = None
        self._started = 0.0
        self._last_line = 0.0

    def __call__(self, step: Step) -> None:
        now = self._clock()
        if step.stage != self._stage:
            self._stage, self._started, self._last_line = step.stage, now, now
        if step.done >= step.total or now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            print(_line(step, now - self._started), file=self._stream, flush=True)


def _line(step: Step, elapsed: float) -> str:
    """`convert  120/272 tensors  45.3 MB of 98.4 MB  12.1 MB/s  4.4 s left`"""
    parts = [step.stage, _count(step)]
    done, total = (step.done_bytes, step.total_bytes) if step.total_bytes else (step.done, step.total)
    if step.total_bytes:
        parts.append(f"{format_bytes(step.done_bytes)} of {format_bytes(step.total_bytes)}")
        parts.append(f"{format_bytes(done / max(elapsed, 1e-3))}/s")
    if done >= total:
        parts.append(f"in {format_seconds(elapsed)}")
    elif done:
        parts.append(f"{format_seconds(elapsed * (total - done) / done)} left")
    return "  ".join(filter(None, parts))


def _count(step: Step) -> str:
    """`120/272 tensors`; the step's detail for a stage without a unit."""
    return f"{step.done}/{step.total} {step.unit}".rstrip() if step.unit else step.detail


class _Bars:
    """Progress on a terminal: one bar per stage."""

    def __enter__(self) -> _Bars:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        amount = TextColumn("{task.fields[amount]}")
        columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
        self._display = Progress(*columns, console=Console(stderr=True))
        self._tasks: dict[str, TaskID] = {}
        self._started: dict[str, float] = {}
        self._display.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._display.stop()

    def __call__(self, step: Step) -> None:
        if step.stage not in self._tasks:
            self._started[step.stage] = time.monotonic()
            self._tasks[step.stage] = self._display.add_task(step.stage, amount="")
        elapsed = time.monotonic() - self._started[step.stage]
        done, total = (step.done_bytes, step.total_bytes) if step.total_bytes else (step.done, step.total)
        self._display.update(self._tasks[step.stage], completed=done, total=total, amount=_amount(step, elapsed))


def _amount(step: Step, elapsed: float) -> str:
    if not step.total_bytes:
        return _count(step)
    rate = format_bytes(step.done_bytes / max(elapsed, 1e-3))
    return f"{_count(step)}  {format_bytes(step.done_bytes)} of {format_bytes(step.total_bytes)}  {rate}/s"


def _format(name: str, value: Any) -> str:
    """Format a report's value; the field's name determines its unit (`..._bytes`, `seconds_...`)."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int() | float() if "bytes" in name.split("_"):
            return format_bytes(value)
        case int() | float() if "seconds" in name.split("_"):
            return format_seconds(value)
        case float():
            return f"{value:.4g}"
        case Mapping():
            return ", ".join(f"{key} {_format(name, item)}" for key, item in value.items())
        case list() | tuple():
            return ", ".join(str(item) for item in value[:_LIST_LIMIT]) + _more(len(value))
        case _:
            return str(value)


def _more(count: int) -> str:
    return f", and {count - _LIST_LIMIT} more" if count > _LIST_LIMIT else ""


def _plain(value: Any) -> Any:
    """Convert a value to JSON types."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    match value:
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case Path():
            return str(value)
        case float() if not math.isfinite(value):
            return None
        case _:
            return value


def _is_number(cell: str) -> bool:
    return cell.replace(".", "", 1).replace("-", "", 1).isdigit()
