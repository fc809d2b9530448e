"""`mlc_cli generate`: answer or complete one prompt, printing text as it is generated."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlc_cli import console, running
from mlc_cli.answers import as_dict
from mlc_cli.options import json_option
from mlc_cli.preparing import model_options
from mlc_cli.sampling_options import (
    Choice,
    check_guesses,
    draft_option,
    guesses,
    num_draft_option,
    sampling_options,
    with_draft,
)
from mlc_errors import UsageError

if TYPE_CHECKING:
    from mlc_runtime.llm import LLM
    from mlc_runtime.sampling import Sampling
    from mlc_toolchain.prepare_plan import PrepareOptions


@click.command("generate")
@model_options
@click.option("-p", "--prompt", metavar="TEXT", help="The text to answer or to complete. Default: standard input.")
@click.option("--image", "images", metavar="FILE", multiple=True, help="An image before the prompt; may be repeated.")
@click.option(
    "--max-tokens",
    type=int,
    default=512,
    show_default=True,
    metavar="N",
    help="Maximum length of the answer; -1: until the context is full.",
)
@sampling_options
@click.option(
    "-n", "count", type=int, default=1, show_default=True, metavar="N", help="Number of answers, computed as a batch."
)
@click.option(
    "--top-logprobs",
    type=int,
    metavar="N",
    help="With --json: log probability of each token and of its N most likely alternatives, 0 to 20.",
)
@num_draft_option
@draft_option
@click.option(
    "--chat/--raw",
    "as_chat",
    default=None,
    help="Wrap the prompt in the chat template, or complete it as it is. Default: chat if there is a template.",
)
@running.threads_option
@json_option
def generate(
    model: str,
    preparing: PrepareOptions,
    prompt: str | None,
    images: tuple[str, ...],
    max_tokens: int,
    choice: Choice,
    count: int,
    top_logprobs: int | None,
    num_draft: int | None,
    draft: str | None,
    as_chat: bool | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Answer or complete a prompt with MODEL: a model folder, a checkpoint folder, a .gguf file, or HF://owner/name.

    The text is streamed to standard output; speed is printed on standard error.
    """
    text = console.standard_input() if prompt is None else prompt
    if prompt is None and not text:
        raise UsageError("no prompt", hint='give --prompt "…", or pipe text to standard input')
    if top_logprobs is not None and not as_json:
        raise UsageError("--top-logprobs is a part of the JSON object", hint="add --json")
    _check(choice, max_tokens, top_logprobs, count, num_draft, draft, images)
    with (
        guesses(model, preparing, draft, num_draft, threads) as speculation,
        running.load(model, with_draft(preparing, speculation), threads) as llm,
    ):
        if as_chat:
            running.check_chat_template(llm)
        sampling = choice.sampling(llm, max_tokens, top_logprobs)
        if llm.has_chat_template if as_chat is None else as_chat:
            from mlc_runtime.image_prompt import user_message

            ids, sampling = llm.chat_prompt([user_message(text, images)]), llm.with_chat_stops(sampling)
        else:
            ids = llm.encode(text, images)
        if count != 1:
            _several(llm, ids, sampling, count, as_json)
            return
        stream = llm.stream(ids, sampling, **speculation)
        for piece in stream:
            if not as_json:
                click.echo(piece, nl=False)
        if as_json:
            console.write_json("generate/1", as_dict(stream.result, llm))
            return
    click.echo()
    console.note(running.speed(stream.result))


def _check(
    choice: Choice,
    max_tokens: int,
    top_logprobs: int | None,
    count: int,
    num_draft: int | None,
    draft: str | None,
    images: tuple[str, ...],
) -> None:
    """Raises UsageError for options that are invalid for any model, before one is prepared."""
    choice.check(max_tokens, top_logprobs)
    check_guesses(num_draft)
    if count < 1:
        raise UsageError(f"-n is {count}; expected at least 1")
    if count > 1 and (num_draft or draft):
        raise UsageError("--num-draft is for one answer; got -n above 1")
    for image in images:
        if not Path(image).is_file():
            raise UsageError(f"--image: {image} is no file")


def _several(llm: LLM, ids: list[int], sampling: Sampling, count: int, as_json: bool) -> None:
    """Print several answers, computed as a batch."""
    from mlc_runtime.batch import generate_batch

    results = generate_batch(llm.model, llm.tokenizer, [ids] * count, sampling)
    if as_json:
        console.write_json("generate_batch/1", {"answers": [as_dict(result, llm) for result in results]})
        return
    for number, result in enumerate(results, 1):
        console.note(f"answer {number} of {count}; {result.note or result.finish_reason}")
        click.echo(result.text)
