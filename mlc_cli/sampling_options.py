"""Options of `generate` and `chat` for sampling and stop conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypedDict

import click

from mlc_cli import running
from mlc_cli.options import MODEL
from mlc_errors import UsageError

if TYPE_CHECKING:
    from mlc_runtime.llm import LLM
    from mlc_runtime.sampling import Sampling
    from mlc_toolchain.prepare_plan import PrepareOptions


FILTERS = ("top_k", "top_p", "min_p", "typical_p")
PENALTIES = ("presence", "frequency", "repetition")


@dataclass(frozen=True)
class Choice:
    """Sampling options of the command line; None takes the model's default."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: tuple[str, ...] = ()
    seed: int | None = None
    greedy: bool = False
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    overflow: str = "stop"

    @property
    def _temperature(self) -> float | None:
        if self.greedy and self.temperature:
            raise UsageError(f"--greedy and --temperature {self.temperature} exclude each other")
        return 0.0 if self.greedy else self.temperature

    def check(self, max_tokens: int | None, top_logprobs: int | None = None) -> None:
        """Raise UsageError for settings that are invalid for any model, before one is prepared."""
        from mlc_runtime.penalties import NO_PENALTIES
        from mlc_runtime.sampling import UNTIL_FULL, Filters, Sampling, given

        filters = {name: getattr(self, name) for name in FILTERS}
        penalties = {name: getattr(self, f"{name}_penalty") for name in PENALTIES}
        Sampling(
            max_tokens=None if max_tokens == UNTIL_FULL else max_tokens,
            temperature=self._temperature or 0.0,
            filters=given(Filters(), **filters),
            penalties=given(NO_PENALTIES, **penalties),
            logit_bias=dict(map(_bias, self.logit_bias)),
            seed=self.seed,
            stop=self.stop,
            eos_ids=frozenset(self.stop_ids),
            top_logprobs=top_logprobs,
            overflow=self.overflow,
        )

    def sampling(self, llm: LLM, max_tokens: int | None, top_logprobs: int | None = None) -> Sampling:
        return llm.sampling(
            max_tokens=max_tokens,
            temperature=self._temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            typical_p=self.typical_p,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=self.repetition_penalty,
            logit_bias=dict(map(_bias, self.logit_bias)),
            seed=self.seed,
            stop=self.stop,
            stop_ids=self.stop_ids,
            ignore_eos=self.ignore_eos,
            top_logprobs=top_logprobs,
            overflow=self.overflow,
        )


def _bias(text: str) -> tuple[int, float]:
    """Parse a token id and its bias, such as `50256=-100`."""
    token, _, bias = text.partition("=")
    try:
        return int(token), float(bias)
    except ValueError:
        raise UsageError(f"--logit-bias: got {text!r}; expected ID=BIAS, as 50256=-100") from None


_SAMPLING_OPTIONS = (
    click.option(
        "--temperature",
        type=float,
        metavar="T",
        help="0: the most likely token. Default: the model's own, else 0.7 with --top-p 0.95.",
    ),
    click.option("--top-k", type=int, metavar="K", help="Keep the K most likely tokens; 0 keeps all."),
    click.option("--top-p", type=float, metavar="P", help="Keep the most likely tokens up to total probability P."),
    click.option("--min-p", type=float, metavar="P", help="Keep tokens at least P times as likely as the likeliest."),
    click.option(
        "--typical-p", type=float, metavar="P", help="Keep the most typical tokens up to total probability P."
    ),
    click.option(
        "--presence-penalty", type=float, metavar="X", help="Subtracted from the logits of the answer's tokens."
    ),
    click.option(
        "--frequency-penalty", type=float, metavar="X", help="Subtracted once per occurrence of a token in the answer."
    ),
    click.option(
        "--repetition-penalty",
        type=float,
        metavar="X",
        help="Divides positive logits of tokens in prompt and answer by X, multiplies negative ones.",
    ),
    click.option(
        "--logit-bias",
        multiple=True,
        metavar="ID=BIAS",
        help="Added to a token's logit, -100 to 100; may be repeated.",
    ),
    click.option("--seed", type=int, metavar="S", help="Random seed; the same seed gives the same answer."),
    click.option("--greedy", is_flag=True, help="Always take the most likely token."),
    click.option("--stop", multiple=True, metavar="TEXT", help="A text that ends the answer; may be repeated."),
    click.option(
        *("--stop-id", "stop_ids"),
        type=int,
        multiple=True,
        metavar="ID",
        help="A token id that ends the answer; may be repeated.",
    ),
    click.option("--ignore-eos", is_flag=True, help="Continue after the model's own end tokens."),
    click.option(
        "--overflow",
        default="stop",
        show_default=True,
        metavar="WHAT",
        help="When the context is full: stop, shift (drop the oldest half), or sinks (the same, keeping the first 4).",
    ),
)


def sampling_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator: adds the sampling options; the command receives them as one argument ``choice``."""

    @wraps(command)
    def with_choice(**given: Any) -> None:
        command(choice=Choice(**{f.name: given.pop(f.name) for f in fields(Choice)}), **given)

    for option in reversed(_SAMPLING_OPTIONS):
        with_choice = option(with_choice)
    return with_choice


MTP = "mtp"
TRAINED_AHEAD = 1
"""Tokens that a multi-token prediction layer is trained to draft; beyond that it reads its own results."""

num_draft_option = click.option(
    "--num-draft",
    type=int,
    metavar="N",
    help="Speculative decoding: draft N tokens at a time, from repetitions or by --draft. The answer stays the same.",
)
draft_option = click.option(
    "--draft",
    type=MODEL,
    metavar="MODEL",
    help="Draft model: a smaller model with the same vocabulary, the folder of an EAGLE or Medusa head, or mtp, the "
    "multi-token prediction layer in MODEL's checkpoint.",
)


class Guesses(TypedDict, total=False):
    """The arguments of ``LLM.stream`` for speculative decoding."""

    num_draft: int
    draft: LLM


def check_guesses(num_draft: int | None) -> None:
    """Raise UsageError for a negative number, before a model is prepared."""
    if num_draft is not None and num_draft < 0:
        raise UsageError(f"--num-draft: got {num_draft}; expected at least 0")


def with_draft(preparing: PrepareOptions, speculation: Guesses) -> PrepareOptions:
    """The options of preparing the model that drafts are for: with the functions that a draft head takes."""
    draft = speculation.get("draft")
    if draft is None:
        return preparing
    from mlc_runtime.draft_heads import is_draft_head

    return replace(preparing, draft_heads=is_draft_head(draft.compiled))


@contextmanager
def guesses(
    model: str, preparing: PrepareOptions, draft: str | None, num_draft: int | None, threads: int | None
) -> Iterator[Guesses]:
    """Prepare the draft model for the model's device and open it; yields the arguments for ``LLM.stream``.

    model, preparing: the model that it drafts for, and its options.
    """
    from mlc_runtime.speculation import NUM_DRAFT
    from mlc_toolchain.prepare_plan import PrepareOptions

    if draft is None:
        yield {"num_draft": num_draft or 0}
        return
    if draft == MTP:
        name, options = model, replace(preparing, model_type=MTP, model_lib=None, draft_heads=False)
    else:
        name, options = draft, PrepareOptions(device=preparing.device)
    default = TRAINED_AHEAD if draft == MTP else NUM_DRAFT
    with running.load(name, options, threads, continues_text=False) as opened:
        yield {"num_draft": default if num_draft is None else num_draft, "draft": opened}
