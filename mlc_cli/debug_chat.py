"""`mlc_cli debug_chat`: dump the results of every kernel of a model, or compare them with transformers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlc_cli import console, plots, running
from mlc_cli.options import FILE, FOLDER, json_option
from mlc_cli.preparing import model_options
from mlc_errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from mlc_evaluation.comparison import Comparison
    from mlc_evaluation.debug_chat import DebugReport
    from mlc_evaluation.observed import ModelFiles
    from mlc_toolchain.prepare_plan import PrepareOptions


@click.command("debug_chat")
@model_options
@click.option(
    "-p", "--prompt", required=True, metavar="TEXT", help="The prompt; wrapped in the chat template if there is one."
)
@click.option("--generate-len", type=int, default=1, show_default=True, metavar="N", help="Tokens to generate.")
@click.option("--debug-dir", type=FOLDER, metavar="DIR", help="Write the arguments of every kernel to files in DIR.")
@click.option("--compare", metavar="hf:PATH", help="Compare with transformers running the checkpoint in PATH.")
@click.option(
    "--tolerance",
    type=float,
    metavar="X",
    help="Largest error that agrees, relative to the tensor's norm. Default: 0.001; 0.2 for quantized weights.",
)
@click.option("--plot", type=FILE, metavar="FILE", help="With --compare: draw the errors; needs matplotlib.")
@running.threads_option
@json_option
def debug_chat(
    model: str,
    preparing: PrepareOptions,
    prompt: str,
    generate_len: int,
    debug_dir: Path | None,
    compare: str | None,
    tolerance: float | None,
    plot: Path | None,
    threads: int | None,
    as_json: bool,
) -> int:
    """Dump the results of every kernel of MODEL, or find the first kernel that departs from transformers.

    The model is compiled again with the same kernels and a call of an observer after each. The exit status
    is 1 if a result has a NaN or an infinity, or if a kernel departs.
    """
    from mlc_evaluation.comparison import check_tolerance, compare_with_transformers
    from mlc_evaluation.debug_chat import check_request, prompt_ids, write_kernels
    from mlc_evaluation.transformers_model import TransformersModel, checkpoint_path

    if debug_dir is None and compare is None:
        raise UsageError("nothing to do", hint="give --debug-dir DIR, --compare hf:PATH, or both")
    check_tolerance(tolerance)
    if plot is not None:
        if compare is None:
            raise UsageError("--plot is for --compare", hint="add --compare hf:PATH")
        plots.check_plot(plot)
    if debug_dir is not None:
        check_request(generate_len, debug_dir)
    reference = TransformersModel(checkpoint_path(compare)) if compare else None
    report, comparison = None, None
    with running.observed(files_for_cpu(model, preparing, threads), as_json) as llm:
        ids = prompt_ids(llm, prompt)
        if reference:
            comparison = compare_with_transformers(llm, reference, ids, tolerance)
        if debug_dir:
            report = write_kernels(llm, ids, generate_len, debug_dir)
    if plot and comparison:
        plots.draw_errors(comparison, plot)
    if as_json:
        console.write_json("debug_chat/1", {"report": report, "comparison": comparison})
    else:
        _print(report, comparison)
    return 1 if (report and report.problem) or (comparison and comparison.departs) else 0


def files_for_cpu(model: str, preparing: PrepareOptions, threads: int | None) -> ModelFiles:
    """Prepare a model whose kernels are to be observed: a checkpoint is compiled for the CPU, even beside a GPU.

    Raises UnsupportedError for a --device that is no CPU, before a model is prepared.
    """
    from mlc_toolchain.device import find_target

    if find_target(preparing.target)[0].kind == "cpu":
        return running.files(model, preparing, threads)
    if preparing.device is not None:
        raise UnsupportedError(
            f"--device {preparing.device}: kernels are observed on CPUs only",
            hint=f"leave it out, or run the kernels in a simulator: "
            f"mlc_cli check_kernels {model} --device {preparing.device}",
        )
    return running.files(model, replace(preparing, device="cpu"), threads)


def _print(report: DebugReport | None, comparison: Comparison | None) -> None:
    if comparison:
        show_comparison(comparison)
    if report:
        console.show(report, "debug_chat/1")


def show_comparison(comparison: Comparison) -> None:
    """Print the errors of the layers and the first kernel that departs."""
    from mlc_evaluation.error_plot import error_plot

    click.echo(error_plot(comparison.layers))
    if not comparison.departs:
        click.echo(f"all layers agree within {comparison.tolerance:g}, on {comparison.tokens} tokens")
        return
    click.echo(f"departs at {comparison.departs}")
    click.echo(f"  the last kernel that agrees: {comparison.last or 'none'}")
    click.echo(f"  the reference computes {comparison.expected} there")
