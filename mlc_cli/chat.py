"""`mlc_cli chat`: a conversation in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mlc_cli import running
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

if TYPE_CHECKING:
    from mlc_toolchain.prepare_plan import PrepareOptions


@click.command("chat")
@model_options
@click.option("--system", metavar="TEXT", help="System message of the conversation.")
@click.option(
    "--max-tokens",
    type=int,
    metavar="N",
    help="Maximum length of an answer; -1: until the context is full. Default: 2048.",
)
@sampling_options
@num_draft_option
@draft_option
@running.threads_option
@json_option
def chat(
    model: str,
    preparing: PrepareOptions,
    system: str | None,
    max_tokens: int | None,
    choice: Choice,
    num_draft: int | None,
    draft: str | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Chat with MODEL: a model folder, a checkpoint folder, a .gguf file, or HF://owner/name.

    The conversation stays in the KV cache: each turn computes only the new tokens. /help lists the commands.
    With --json each event is printed as one JSON line, and each line of input may be a JSON object: {"content":
    "Hello"}, optionally with "images", or {"command": "/reset"}.
    """
    from mlc_cli.conversation import Conversation

    choice.check(max_tokens)
    check_guesses(num_draft)
    with (
        guesses(model, preparing, draft, num_draft, threads) as speculation,
        running.load(model, with_draft(preparing, speculation), threads) as llm,
    ):
        running.check_chat_template(llm)
        Conversation(llm, choice, max_tokens, system, speculation, as_json).run()
