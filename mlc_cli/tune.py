"""`mlc_cli tune`: search for faster schedules of a model's kernels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlc_cli import console, plots
from mlc_cli.options import (
    FILE,
    FOLDER,
    MODEL,
    device_option,
    json_option,
    kv_cache_dtype_option,
    model_type_option,
    verbose_option,
)

if TYPE_CHECKING:
    from mlc_toolchain.tune import KernelGain, TuneReport

COLUMNS = ("kernel", "calls", "default us", "best us", "gain", "trials", "failed", "note")


@click.command("tune")
@click.argument("model", metavar="MODEL", type=MODEL)
@click.option(
    "--database", required=True, type=FOLDER, metavar="DIR", help="Folder for the schedules; created if missing."
)
@click.option(
    "--budget", default="10m", show_default=True, metavar="TIME", help="Duration of the search: 90s, 10m, 1h."
)
@click.option(
    "--strategy",
    default="evolution",
    show_default=True,
    metavar="NAME",
    help="Search strategy: random, evolution or beam.",
)
@click.option(
    "--workers", default="", metavar="ADDRESS", help="Measure on the workers of a Dask cluster: tcp://host:8786."
)
@click.option("--quantization", metavar="NAME", help="Quantization scheme. Default: the config's.")
@model_type_option
@device_option
@click.option("--opt", default="O3", show_default=True, metavar="LEVEL", help="See compile.")
@click.option("--overrides", default="", metavar="K=V;...", help="See compile.")
@kv_cache_dtype_option
@click.option("--plot", type=FILE, metavar="FILE", help="Plot the speedups to an image file; needs matplotlib.")
@verbose_option
@json_option
def tune(
    model: str,
    database: Path,
    budget: str,
    strategy: str,
    workers: str,
    quantization: str | None,
    model_type: str,
    device: str,
    opt: str,
    overrides: str,
    kv_cache_dtype: str,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Search for faster schedules of MODEL's kernels on this machine. compile --tune DIR applies them.

    The most expensive kernels come first. Results of every candidate are compared with those of unscheduled loops. An
    interrupted search keeps its trials; the next one continues from there. MODEL is as for compile.

    --workers measures on other machines, with `dask scheduler` on one and `dask worker ADDRESS --nthreads 1` on each,
    where this package is installed; name their CPU with --device.

    Times for a GPU that this machine does not have are predicted from the kernels' memory traffic and arithmetic.
    """
    from mlc_toolchain.compile import CompileOptions
    from mlc_toolchain.tune import TuneOptions, tune_model

    if plot is not None:
        plots.check_plot(plot)
    compiling = CompileOptions(
        model=model,
        output=Path("lib.so"),
        device=device,
        opt=opt,
        overrides=overrides,
        quantization=quantization,
        kv_cache_dtype=kv_cache_dtype,
        model_type=model_type,
    )
    with console.progress(as_json) as progress:
        report = tune_model(TuneOptions(compiling, database, budget, strategy, workers), progress)
    if plot is not None:
        plots.draw_gains(report.kernels, f"{report.target}{', predicted' if report.predicted else ''}", plot)
    if as_json:
        console.write_json("tune/1", report)
    else:
        _print(report)


def _print(report: TuneReport) -> None:
    click.echo(f"target {report.target}, {report.trials} trials, database {report.database}")
    if report.predicted:
        click.echo("times are predictions: this machine has no GPU that runs this code")
    console.table(COLUMNS, map(_row, report.kernels))


def _row(kernel: KernelGain) -> tuple[object, ...]:
    values = (kernel.default_us, kernel.best_us, kernel.gain)
    shown = ["-" if value is None else f"{value:.2f}" for value in values]
    return (kernel.kernel, kernel.calls, *shown, kernel.trials, kernel.failed, kernel.note)
