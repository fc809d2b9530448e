"""`mlc_cli debug_compare`: compare the kernels of two libraries of one model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlc_cli import console, running
from mlc_cli.debug_chat import files_for_cpu, show_comparison
from mlc_cli.options import FILE, json_option
from mlc_cli.preparing import model_options

if TYPE_CHECKING:
    from mlc_toolchain.prepare_plan import PrepareOptions


@click.command("debug_compare")
@model_options
@click.option(
    "-p", "--prompt", required=True, metavar="TEXT", help="The prompt; wrapped in the chat template if there is one."
)
@click.option(
    "--reference", type=FILE, required=True, metavar="FILE", help="Another library of MODEL, for example of --opt O0."
)
@click.option(
    "--tolerance",
    type=float,
    metavar="X",
    help="Largest error that agrees, relative to the tensor's norm. Default: 0.001; 0.2 if only one library rounds "
    "activations.",
)
@running.threads_option
@json_option
def debug_compare(
    model: str,
    preparing: PrepareOptions,
    prompt: str,
    reference: Path,
    tolerance: float | None,
    threads: int | None,
    as_json: bool,
) -> int:
    """Compare the results of the kernels of two libraries of MODEL on a prompt.

    Each result is searched for among the results of the other library, which may be fused differently. The
    exit status is 1 if a kernel departs.
    """
    from mlc_evaluation.comparison import (
        check_tolerance,
        compare_libraries,
        first_tokens,
        kernel_results,
        library_tolerance,
    )
    from mlc_evaluation.debug_chat import prompt_ids
    from mlc_runtime.metadata import read_metadata

    check_tolerance(tolerance)
    read_metadata(reference)  # raises where it is no library
    files = files_for_cpu(model, preparing, threads)
    with running.observed(replace(files, library=reference), as_json) as llm:
        ids = first_tokens(llm, prompt_ids(llm, prompt))
        expected, options = kernel_results(llm, ids), llm.library.metadata["opt"]
    with running.observed(files, as_json) as llm:
        if tolerance is None:
            tolerance = library_tolerance(llm.model.spec.quantization, [options, llm.library.metadata["opt"]])
        comparison = compare_libraries(expected, kernel_results(llm, ids), len(ids), tolerance)
    if as_json:
        console.write_json("debug_compare/1", comparison)
    else:
        show_comparison(comparison)
    return 1 if comparison.departs else 0
