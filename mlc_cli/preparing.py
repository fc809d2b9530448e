"""Shared by the commands that run a model: which one, and how it is prepared when it is not compiled yet."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from mlc_cli import console
from mlc_cli.options import model_lib_option

if TYPE_CHECKING:
    from mlc_toolchain.prepare import PreparedModel
    from mlc_toolchain.prepare_plan import PrepareOptions

# A model folder, a checkpoint folder, its config.json, a .gguf file, or HF://owner/name[@revision][:file.gguf].
model_argument = click.argument("model", metavar="MODEL")

_OPTIONS = (
    click.option(
        "--quantization",
        metavar="NAME",
        help="Of a checkpoint's weights: q0f16, q4f16_1, ...; auto: the most exact that fits the memory. "
        "Default: q4f16_nl, calibrated; q4f16_1 where the checkpoint has such codes or calibration is not possible.",
    ),
    click.option("--memory", metavar="SIZE", help="What auto may use: 4GiB. Default: this machine's free memory."),
    click.option(
        "--device",
        metavar="NAME",
        help="cpu, cuda, or cuda:1 for the second GPU; what is to be compiled takes any target of compile. "
        "Default: the library's, or this machine's GPU or else CPU.",
    ),
    click.option("--opt", metavar="LEVEL", help="Of the compilation, as of compile: O0 to O3, act=16, ..."),
    click.option("--overrides", default="", metavar="K=V;...", help="Sizes to change, as of compile."),
    click.option("--conv-template", metavar="NAME", help="Conversation format of a checkpoint. Default: its own."),
    model_lib_option,
    click.option("--dry-run", is_flag=True, help="Say what would be converted and compiled, and stop."),
)


def model_options(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """Decorator: adds MODEL and the options of its preparation, which the command gets as ``model`` and ``preparing``.

    With --dry-run the command is not run.
    """

    @wraps(command)
    def with_model(model: str, dry_run: bool, **given: Any) -> int | None:
        from mlc_toolchain.prepare import preview
        from mlc_toolchain.prepare_plan import PrepareOptions

        names = ("quantization", "memory", "device", "opt", "overrides", "conv_template", "model_lib")
        preparing = PrepareOptions(**{name: given.pop(name) for name in names})
        if dry_run:
            console.show(preview(model, preparing), bool(given.get("as_json")))
            return None
        return command(model=model, preparing=preparing, **given)

    for option in reversed((model_argument, *_OPTIONS)):
        with_model = option(with_model)
    return with_model


def prepared(model: str, preparing: PrepareOptions) -> PreparedModel:
    """The model's folder and library, after preparing what is missing with progress on standard error."""
    from mlc_toolchain.prepare import prepared_model

    def waiting() -> None:
        console.note("another process is preparing this model; waiting for it")

    with console.late_progress() as progress:
        try:
            return prepared_model(model, preparing, progress, waiting)
        except KeyboardInterrupt:
            console.note("the same command will continue where this run stopped")
            raise
