"""Helpers of commands that run a model: options, loading with progress, the line about speed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from mlc_cli import console
from mlc_cli.preparing import prepared
from mlc_errors import MLCError, UsageError

if TYPE_CHECKING:
    from mlc_evaluation.observed import ModelFiles
    from mlc_runtime.generation import GenerationResult
    from mlc_runtime.llm import LLM
    from mlc_toolchain.prepare_plan import PrepareOptions

SECONDS_BEFORE_PROGRESS = 1.0

threads_option = click.option("--threads", type=int, metavar="N", help="Worker threads. Default: physical cores.")


def load(model: str, preparing: PrepareOptions, threads: int | None, continues_text: bool = True) -> LLM:
    """Prepare and open the model; loading that takes more than a second shows its progress."""
    _check_threads(threads)
    made = prepared(model, preparing, continues_text)
    from mlc_runtime.llm import LLM
    from mlc_toolchain.progress import Step

    with console.late_progress(SECONDS_BEFORE_PROGRESS) as progress:

        def loaded(done: int, total: int, done_bytes: int, total_bytes: int) -> None:
            progress(Step("load", done, total, "parameters", done_bytes, total_bytes))

        return LLM(made.folder, made.library, threads, progress=loaded, device=made.device)


def files(model: str, preparing: PrepareOptions, threads: int | None) -> ModelFiles:
    """Prepare the model and return its files."""
    from mlc_evaluation.observed import ModelFiles

    _check_threads(threads)
    made = prepared(model, preparing)
    return ModelFiles(made.folder, made.library, threads, made.device)


def check_chat_template(llm: LLM) -> None:
    """Raise MLCError for a model that does not continue text, and for one without a chat template."""
    _ = llm.model  # raises where it turns texts into vectors
    if not llm.has_chat_template:
        raise MLCError("the model has no chat template", where=[str(llm.folder)], hint="use generate --raw")


def _check_threads(threads: int | None) -> None:
    """Raises UsageError for an invalid number of threads, before a model is prepared."""
    if threads is None:
        return
    from mlc_runtime.library import MAX_THREADS

    if not 1 <= threads <= MAX_THREADS:
        raise UsageError(f"--threads: got {threads}; expected 1 to {MAX_THREADS}")


@contextmanager
def observed(found: ModelFiles, quiet: bool = False) -> Iterator[LLM]:
    """The model, compiled again with calls of a kernel observer. quiet: without progress."""
    with console.progress(quiet) as progress, found.open_observed(tensors=True, progress=progress) as llm:
        yield llm


def speed(result: GenerationResult) -> str:
    """`prompt 38 tokens, 512.3 tok/s; answer 57 tokens, 103.1 tok/s; stop`"""
    prompt = f"prompt {result.prompt_tokens} tokens, {result.prefill_rate:.1f} tok/s"
    answer = f"answer {len(result.token_ids)} tokens, {result.decode_rate:.1f} tok/s"
    return f"{prompt}; {answer}; {result.note or result.finish_reason}"
