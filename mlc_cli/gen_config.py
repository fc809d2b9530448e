"""`mlc_cli gen_config`: write a checkpoint's configuration, conversation template and tokenizer to a model folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from mlc_cli import console
from mlc_cli.options import (
    json_option,
    model_type_option,
    output_folder_option,
    quantization_option,
    source_argument,
    verbose_option,
)
from mlc_errors import UnsupportedError

_SIZES = {
    "context_window_size": "Maximum length of a sequence, in tokens.",
    "sliding_window_size": "Attention window in tokens, for models with sliding-window attention.",
    "prefill_chunk_size": "Prompt tokens per call of prefill.",
    "attention_sink_size": "First tokens that stay visible in a sliding window.",
    "tensor_parallel_shards": "Devices among which each layer is split.",
    "pipeline_parallel_stages": "Devices among which the layers are distributed.",
}


def _refuse_disaggregation() -> None:
    raise UnsupportedError("--disaggregation: prefill and decode share their devices", hint="leave it out")


def _size_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator: adds an integer option for each size."""
    for name, summary in reversed(_SIZES.items()):
        command = click.option("--" + name.replace("_", "-"), type=int, metavar="N", help=summary)(command)
    return command


@click.command("gen_config")
@source_argument
@quantization_option
@model_type_option
@click.option(
    "--conv-template",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="Conversation template; auto takes the checkpoint's.",
)
@_size_options
@click.option(
    "--max-batch-size", type=int, default=128, show_default=True, metavar="N", help="Sequences decoded together."
)
@click.option(
    "--disaggregation",
    type=bool,
    metavar="BOOL",
    expose_value=False,
    callback=lambda _context, _option, given: _refuse_disaggregation() if given else None,
    help="Only false is supported: prefill and decode share their devices.",
)
@click.option("--memory", metavar="SIZE", help="Report the largest batch size that fits into SIZE, such as 8GiB.")
@click.option("--skip-template-check", is_flag=True, help="Accept a template whose tokens the tokenizer lacks.")
@output_folder_option
@verbose_option
@json_option
def gen_config(
    source: str,
    quantization: str,
    model_type: str,
    conv_template: str,
    max_batch_size: int,
    memory: str | None,
    skip_template_check: bool,
    output: Path,
    as_json: bool,
    **sizes: int | None,
) -> None:
    """Write mlc-chat-config.json and the tokenizer files of MODEL to DIR.

    MODEL is a Hugging Face folder, its config.json, a .gguf file, a preset, or HF://owner/name.
    """
    from mlc_toolchain.gen_config import GenConfigOptions
    from mlc_toolchain.gen_config import gen_config as run
    from mlc_toolchain.model_sizes import SizeOverrides

    report = run(
        GenConfigOptions(
            source=source,
            quantization=quantization,
            output=output,
            model_type=model_type,
            conv_template=conv_template,
            sizes=SizeOverrides(max_batch_size=max_batch_size, **sizes),
            memory=memory,
            check_template=not skip_template_check,
        )
    )
    console.show(report, "gen_config/1", as_json)
