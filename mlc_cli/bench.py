"""`mlc_cli bench`: measure the speed of a compiled model, and the time of its kernels."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlc_cli import console, running
from mlc_cli.options import FILE, json_option
from mlc_cli.preparing import model_options
from mlc_errors import UsageError
from mlc_files import check_writable

if TYPE_CHECKING:
    from mlc_evaluation.benchmark import BenchReport, Percentiles
    from mlc_evaluation.llama_cpp import LlamaCpp, PeerReport
    from mlc_evaluation.profile import Profile
    from mlc_toolchain.prepare_plan import PrepareOptions

PERCENTILES = ("p10", "p50", "p90", "p99")


@click.command("bench")
@model_options
@click.option(
    "--prompt-lengths", default="128,512", show_default=True, metavar="N,...", help="Prompt lengths in tokens."
)
@click.option("--generate", type=int, default=128, show_default=True, metavar="N", help="Decode steps per measurement.")
@click.option("--batch", default="1", show_default=True, metavar="N,...", help="Batch sizes of decode.")
@click.option(
    "--depth", default="0", show_default=True, metavar="N,...", help="Context lengths before the first decode step."
)
@click.option("--repeat", type=int, default=5, show_default=True, metavar="N", help="Repetitions of each measurement.")
@click.option("--profile", is_flag=True, help="Also time every kernel; compiles the model again.")
@click.option("--html", type=FILE, metavar="FILE", help="With --profile: write a roofline plot and the table to FILE.")
@click.option("--compare", type=FILE, metavar="FILE", help="Also measure llama.cpp on a GGUF file, with one sequence.")
@click.option(
    "--compare-python",
    type=FILE,
    metavar="PATH",
    help="A Python interpreter with llama-cpp-python, for --compare. Default: this one.",
)
@running.threads_option
@json_option
def bench(
    model: str,
    preparing: PrepareOptions,
    prompt_lengths: str,
    generate: int,
    batch: str,
    depth: str,
    repeat: int,
    profile: bool,
    html: Path | None,
    compare: Path | None,
    compare_python: Path | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Measure prefill, decode, time to first token and memory of MODEL.

    Shares are relative to limits measured in the same run: operations per second for prefill, bytes read per second for
    decode. Times are medians, with percentiles beside them.
    """
    from mlc_evaluation.benchmark import BenchOptions, bench
    from mlc_evaluation.profile import profile as profile_kernels
    from mlc_evaluation.roofline import roofline_page

    if html and not profile:
        raise UsageError("--html is for --profile", hint="add --profile")
    if html:
        check_writable(html, "the page")
    lengths = _numbers("prompt-lengths", prompt_lengths)
    options = BenchOptions(lengths, generate, _numbers("batch", batch), _numbers("depth", depth), repeat)
    peer = _peer(compare, compare_python)
    files = running.files(model, preparing, threads)
    report, found = bench(files, options), None
    compared = peer.measure(options, report.threads) if peer else None
    if profile:
        with console.progress(as_json) as progress:
            found = profile_kernels(files, lengths[0], repeat, progress)
    if html and found and report.limits:
        html.write_text(roofline_page(files.folder.name, found, report.limits), encoding="utf-8")
    if as_json:
        console.write_json("bench/1", {"report": report, "profile": found, "compared": compared})
    else:
        _print(report)
        if compared:
            _print_peer(compared, report)
        if found:
            _print_profile(found)


def _numbers(name: str, text: str) -> list[int]:
    """Parse a list such as `128,512`."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--{name}: got {text!r}; expected numbers with commas between them, as 128,512") from None


def _print(report: BenchReport) -> None:
    console.show_fields(
        {
            "model": report.model,
            "machine": f"{report.machine}, {report.threads} threads",
            "quantization": report.quantization,
            "load_seconds": report.load_seconds,
            "peak_bytes": report.peak_bytes,
            "params_bytes": report.params_bytes,
        }
    )
    if report.limits:
        integers = report.limits.integer_operations
        more = f", {integers / 1e9:.0f} G operations/s on bytes" if integers else ""
        limit = f"{report.limits.read_bytes / 1e9:.1f} GB/s, {report.limits.operations / 1e9:.0f} G operations/s{more}"
        click.echo(f"limits        {limit}")
    click.echo()
    columns = ("prefill", "tok/s", *PERCENTILES, "G op/s", "share")
    console.table(
        columns,
        [
            (
                f"{p.tokens} tokens",
                f"{p.tokens_per_second:.1f}",
                *_milliseconds(p.time_to_first_token_seconds),
                f"{p.operations / p.time_to_first_token_seconds.p50 / 1e9:.0f}",
                _share(p.share),
            )
            for p in report.prefill
        ],
    )
    click.echo()
    console.table(
        ("decode", "tok/s", *PERCENTILES, "MB/step", "GB/s", "share"),
        [
            (
                f"batch {d.batch}, depth {d.depth}",
                f"{d.tokens_per_second:.1f}",
                *_milliseconds(d.step_seconds),
                f"{d.step_bytes / 1e6:.1f}",
                f"{d.step_bytes / d.step_seconds.p50 / 1e9:.1f}",
                _share(d.share),
            )
            for d in report.decode
        ],
    )
    console.note("times in ms; of prefill until the first token")


def _peer(file: Path | None, python: Path | None) -> LlamaCpp | None:
    """The engine to compare with; checks first that it can run."""
    from mlc_evaluation.llama_cpp import LlamaCpp

    if file is None:
        if python is not None:
            raise UsageError("--compare-python is for --compare", hint="add --compare FILE.gguf")
        return None
    peer = LlamaCpp(python or Path(sys.executable), file)
    peer.check()
    return peer


def _print_peer(peer: PeerReport, report: BenchReport) -> None:
    """Print the other engine's rows, and the ratio of the model's speed to its."""
    click.echo(f"\n{peer.engine}, {peer.file.name}")
    prefill = {p.tokens: p.tokens_per_second for p in report.prefill}
    decode = {d.depth: d.tokens_per_second for d in report.decode if d.batch == 1}
    rows = [(f"prefill, {s.tokens} tokens", s, prefill.get(s.tokens)) for s in peer.prefill]
    rows += [(f"decode, depth {s.tokens}", s, decode.get(s.tokens)) for s in peer.decode]
    console.table(
        ("", "tok/s", *PERCENTILES, "this model"),
        [
            (
                name,
                f"{s.tokens_per_second:.1f}",
                *_milliseconds(s.seconds),
                f"{ours / s.tokens_per_second:.2f} x" if ours else "-",
            )
            for name, s, ours in rows
        ],
    )


def _print_profile(found: Profile) -> None:
    from mlc_evaluation.profile import COLUMNS

    click.echo()
    console.table(COLUMNS, [kernel.row for kernel in found.kernels])
    sums = ", ".join(f"{name} {seconds * 1e3:.2f} ms" for name, seconds in found.observed_seconds.items())
    console.note(f"all kernels: {sums}, with the clock read after each")


def _milliseconds(times: Percentiles) -> list[str]:
    return [f"{getattr(times, name) * 1e3:.2f}" for name in PERCENTILES]


def _share(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f}%"
