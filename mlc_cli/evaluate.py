"""`mlc_cli eval`: perplexity of a text, divergence from a reference, multiple choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlc_cli import console, running
from mlc_cli.options import FILE, MODEL, json_option
from mlc_cli.preparing import model_options
from mlc_errors import UsageError

if TYPE_CHECKING:
    from mlc_evaluation.multiple_choice import ChoiceScore
    from mlc_evaluation.perplexity import EvaluationReport
    from mlc_evaluation.scorers import Scorer
    from mlc_runtime.llm import LLM
    from mlc_toolchain.prepare_plan import PrepareOptions

FLOAT32 = "float32"


@click.command("eval")
@model_options
@click.option("--text", type=FILE, metavar="FILE", help="The text whose perplexity is measured.")
@click.option("--window", type=int, default=512, show_default=True, metavar="N", help="Tokens per window.")
@click.option("--windows", type=int, metavar="N", help="Use only the first N windows of the text.")
@click.option(
    "--compare",
    multiple=True,
    type=MODEL,
    metavar="MODEL",
    help="Another model with the same vocabulary; may be repeated.",
)
@click.option(
    "--against",
    metavar="REFERENCE",
    help="Measure the divergence from a reference: float32 (the checkpoint MODEL, unquantized), hf:PATH, or a MODEL.",
)
@click.option("--choices", type=FILE, metavar="FILE", help="Multiple-choice questions, a JSON object on each line.")
@running.threads_option
@json_option
def evaluate(
    model: str,
    preparing: PrepareOptions,
    text: Path | None,
    window: int,
    windows: int | None,
    compare: tuple[str, ...],
    against: str | None,
    choices: Path | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Measure MODEL's perplexity on a text, its KL divergence from a reference, and its multiple-choice accuracy.

    A text is split into windows that do not overlap, each read with an empty cache; the second half of each is scored,
    as in llama.cpp's perplexity tool, so that figures for the same text and window are comparable.
    """
    from mlc_evaluation.multiple_choice import answer, read_questions
    from mlc_evaluation.perplexity import check_windows, windows_of
    from mlc_evaluation.perplexity import evaluate as score
    from mlc_evaluation.scorers import CompiledScorer
    from mlc_toolchain.prepare_plan import PrepareOptions
    from mlc_toolchain.text_files import read_text

    if text is None and choices is None:
        raise UsageError("nothing to evaluate", hint="give --text FILE, --choices FILE, or both")
    if against and text is None:
        raise UsageError("--against measures a divergence on a text", hint="give --text FILE")
    if len({model, *compare}) <= len(compare):
        raise UsageError("--compare: a model is named twice")
    check_windows(window, windows)
    content = read_text(text) if text else ""
    questions = read_questions(choices) if choices else []
    others = PrepareOptions(device=preparing.device)
    with ExitStack() as stack:

        def opened(name: str, options: PrepareOptions) -> LLM:
            return stack.enter_context(running.load(name, options, threads))

        llm = opened(model, preparing)
        models: dict[str, Scorer] = {model: CompiledScorer(llm)}
        models |= {name: CompiledScorer(opened(name, others)) for name in compare}
        report, answers = None, {}
        if text:
            found = windows_of(content, llm.tokenizer, window, windows)
            reference = (against, _reference(against, model, opened)) if against else None
            with console.late_progress() as progress:
                report = score(models, found, reference, progress)
        if questions:
            answers = {name: answer(scorer, llm.tokenizer, questions) for name, scorer in models.items()}
    if as_json:
        console.write_json("eval/1", {"text": report, "choices": answers})
    else:
        _print(report, answers)


def _reference(against: str, model: str, opened: Callable[[str, PrepareOptions], LLM]) -> Scorer:
    """The scorer of the reference: a checkpoint compiled in float32, a converted folder, or transformers."""
    from mlc_evaluation.scorers import CompiledScorer, TransformersScorer
    from mlc_evaluation.transformers_model import PREFIX, TransformersModel, checkpoint_path
    from mlc_toolchain.prepare_plan import PrepareOptions, plan_preparation

    if against.startswith(PREFIX):
        return TransformersScorer(TransformersModel(checkpoint_path(against)))
    name = model if against == FLOAT32 else against
    if plan_preparation(name, PrepareOptions()).source:
        return CompiledScorer(opened(name, PrepareOptions(quantization="q0f32", opt="act=exact")))
    if against == FLOAT32:
        raise UsageError(
            f"--against float32: {model} is converted already",
            hint="name the checkpoint: --against CHECKPOINT or hf:PATH",
        )
    return CompiledScorer(opened(name, PrepareOptions()))


def _print(report: EvaluationReport | None, answers: Mapping[str, ChoiceScore]) -> None:
    if report:
        _print_text(report)
    if answers:
        columns = ("model", "questions", "acc", "+-", "acc_norm", "+-")
        rows = [
            (name, a.questions, *map(_four, (a.accuracy, a.accuracy_error, a.accuracy_norm, a.accuracy_norm_error)))
            for name, a in answers.items()
        ]
        console.table(columns, rows)


def _print_text(report: EvaluationReport) -> None:
    windows = f"{report.windows} windows" if report.windows > 1 else "1 window"
    click.echo(
        f"{windows} of {report.window_size} tokens without overlap, the second half of each scored: "
        f"{report.scored_tokens} tokens"
    )
    columns = ["model", "perplexity", "+-"]
    rows = [[s.name, _four(s.perplexity), _four(s.error)] for s in report.models]
    if report.reference:
        columns += ["KL", "+-", "p99", "same token"]
        for row, score in zip(rows, report.models, strict=True):
            d = score.divergence
            assert d is not None
            row += [f"{d.mean:.5f}", f"{d.error:.5f}", _four(d.p99), _four(d.same_top)]
        base = report.reference
        rows.append([base.name, _four(base.perplexity), _four(base.error), "0", "", "", ""])
    console.table(columns, rows)


def _four(value: float) -> str:
    return f"{value:.4f}"
