"""`mlc_cli generate`: continue or answer one prompt, printing text as it is generated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mlc_cli import console, running
from mlc_cli.options import json_option
from mlc_cli.preparing import model_options
from mlc_errors import UsageError

if TYPE_CHECKING:
    from mlc_runtime.generation import GenerationResult
    from mlc_toolchain.prepare_plan import PrepareOptions


@click.command("generate")
@model_options
@click.option("-p", "--prompt", metavar="TEXT", help="The text to continue or to answer. Default: standard input.")
@click.option(
    "--image", "images", metavar="FILE", multiple=True, help="An image before the prompt; may be given several times."
)
@click.option("--max-tokens", type=int, default=512, show_default=True, metavar="N", help="Longest answer.")
@running.sampling_options
@click.option(
    "--chat/--raw",
    "as_chat",
    default=None,
    help="Wrap the prompt in the model's chat template, or continue it as it is. Default: chat if there is a template.",
)
@running.threads_option
@json_option
def generate(
    model: str,
    preparing: PrepareOptions,
    prompt: str | None,
    images: tuple[str, ...],
    max_tokens: int,
    choice: running.Choice,
    as_chat: bool | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Answer or continue a prompt with the compiled model in the folder MODEL, or in HF://owner/name.

    The text goes to standard output as it is generated, speed to standard error.
    """
    from mlc_runtime.image_prompt import user_message

    text = console.standard_input() if prompt is None else prompt
    if prompt is None and not text:
        raise UsageError("no prompt", hint='give --prompt "…", or pipe text to standard input')
    with running.load(model, preparing, threads) as llm:
        sampling = choice.sampling(llm, max_tokens)
        if llm.has_chat_template if as_chat is None else as_chat:
            ids, sampling = llm.chat_prompt([user_message(text, images)]), llm.with_chat_stops(sampling)
        else:
            ids = llm.encode(text, images)
        stream = llm.stream(ids, sampling)
        for piece in stream:
            if not as_json:
                click.echo(piece, nl=False)
    if as_json:
        console.write_json(_as_dict(stream.result))
    else:
        click.echo()
        console.note(running.speed(stream.result))


def _as_dict(result: GenerationResult) -> dict[str, object]:
    return {
        "text": result.text,
        "token_ids": result.token_ids,
        "finish_reason": result.finish_reason,
        "note": result.note,
        "prompt_tokens": result.prompt_tokens,
        "prefill_tokens_per_second": round(result.prefill_rate, 2),
        "decode_tokens_per_second": round(result.decode_rate, 2),
    }
