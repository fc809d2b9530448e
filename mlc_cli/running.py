"""Shared by the commands that run a model: options, loading with progress, the line about speed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from mlc_cli import console
from mlc_cli.preparing import prepared
from mlc_errors import UsageError

if TYPE_CHECKING:
    from mlc_runtime.generation import GenerationResult, Sampling
    from mlc_runtime.llm import LLM
    from mlc_toolchain.prepare_plan import PrepareOptions

SECONDS_BEFORE_PROGRESS = 1.0

threads_option = click.option("--threads", type=int, metavar="N", help="Worker threads. Default: physical cores.")


@dataclass(frozen=True)
class Choice:
    """Sampling options of the command line; None takes the model's default."""

    temperature: float | None
    top_p: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    repetition_penalty: float | None
    logit_bias: tuple[str, ...]
    seed: int | None
    greedy: bool

    def sampling(self, llm: LLM, max_tokens: int | None) -> Sampling:
        if self.greedy and self.temperature:
            raise UsageError(f"--greedy and --temperature {self.temperature} exclude each other")
        return llm.sampling(
            max_tokens=max_tokens,
            temperature=0.0 if self.greedy else self.temperature,
            top_p=self.top_p,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=self.repetition_penalty,
            logit_bias=dict(map(_bias, self.logit_bias)),
            seed=self.seed,
        )


def _bias(text: str) -> tuple[int, float]:
    """`50256=-100` as a token id and its bias."""
    token, _, bias = text.partition("=")
    try:
        return int(token), float(bias)
    except ValueError:
        raise UsageError(f"--logit-bias: got {text!r}; expected ID=BIAS, as 50256=-100") from None


_SAMPLING_OPTIONS = (
    click.option("--temperature", type=float, metavar="T", help="0: the most likely token. Default: the model's own."),
    click.option("--top-p", type=float, metavar="P", help="Keep the most likely tokens with sum P."),
    click.option(
        "--presence-penalty", type=float, metavar="X", help="Taken off the logits of tokens that the answer has."
    ),
    click.option(
        "--frequency-penalty", type=float, metavar="X", help="The same, for each time that the answer has a token."
    ),
    click.option(
        "--repetition-penalty",
        type=float,
        metavar="X",
        help="Positive logits of tokens in prompt and answer are divided by X, others multiplied.",
    ),
    click.option(
        "--logit-bias",
        multiple=True,
        metavar="ID=BIAS",
        help="Added to the logits of a token, -100 to 100; may be given several times.",
    ),
    click.option("--seed", type=int, metavar="S", help="The same seed gives the same answer."),
    click.option("--greedy", is_flag=True, help="Always take the most likely token."),
)


def sampling_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator: adds the options of sampling, which the command gets as one argument ``choice``."""

    @wraps(command)
    def with_choice(**given: Any) -> None:
        command(choice=Choice(**{f.name: given.pop(f.name) for f in fields(Choice)}), **given)

    for option in reversed(_SAMPLING_OPTIONS):
        with_choice = option(with_choice)
    return with_choice


def load(model: str, preparing: PrepareOptions, threads: int | None) -> LLM:
    """Prepare and open the model; loading that takes more than a second shows its progress."""
    made = prepared(model, preparing)
    from mlc_runtime.llm import LLM
    from mlc_toolchain.progress import Step

    with console.late_progress(SECONDS_BEFORE_PROGRESS) as progress:

        def loaded(done: int, total: int, done_bytes: int, total_bytes: int) -> None:
            progress(Step("load", done, total, "parameters", done_bytes, total_bytes))

        return LLM(made.folder, made.library, threads, progress=loaded, device=made.device)


def speed(result: GenerationResult) -> str:
    """`prompt 38 tokens, 512.3 tok/s; answer 57 tokens, 103.1 tok/s; stop`"""
    prompt = f"prompt {result.prompt_tokens} tokens, {result.prefill_rate:.1f} tok/s"
    answer = f"answer {len(result.token_ids)} tokens, {result.decode_rate:.1f} tok/s"
    return f"{prompt}; {answer}; {result.note or result.finish_reason}"
