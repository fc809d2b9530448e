"""Options of commands that run a model: MODEL, and how it is converted and compiled if it is not yet."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from mlc_cli import console
from mlc_cli.options import MODEL, model_lib_option, verbose_option

if TYPE_CHECKING:
    from mlc_toolchain.prepare import PreparedModel
    from mlc_toolchain.prepare_plan import PrepareOptions

# A model folder, a checkpoint folder, its config.json, a .gguf file, or HF://owner/name[@revision][:file.gguf].
model_argument = click.argument("model", metavar="MODEL", type=MODEL)

_OPTIONS = (
    click.option(
        "--quantization",
        metavar="NAME",
        help="Scheme for a checkpoint: q0f16, q4f16_1, ...; auto: the most exact one that fits into memory. "
        "Default: q4f16_nl, calibrated; q4f16_1 if the checkpoint has such codes or calibration is not possible.",
    ),
    click.option("--memory", metavar="SIZE", help="Limit for auto, such as 4GiB. Default: this machine's free memory."),
    click.option(
        "--device",
        metavar="NAME",
        help="cpu, cuda, or cuda:1 for the second GPU; for a checkpoint, any --device of compile. "
        "Default: the library's device, or for a checkpoint this machine's GPU, else its CPU.",
    ),
    click.option("--opt", metavar="LEVEL", help="Optimizations, see compile: O0 to O3, act=16, ..."),
    click.option("--overrides", default="", metavar="K=V;...", help="Sizes to override, see compile."),
    click.option("--conv-template", metavar="NAME", help="Conversation template for a checkpoint. Default: its own."),
    model_lib_option,
    click.option("--dry-run", is_flag=True, help="Print what would be converted and compiled, and stop."),
    verbose_option,
)


def model_options(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """Decorator: adds MODEL and the options for preparing it; the command receives ``model`` and ``preparing``.

    With --dry-run, the command is not run.
    """

    @wraps(command)
    def with_model(model: str, dry_run: bool, **given: Any) -> int | None:
        from mlc_toolchain.prepare import preview
        from mlc_toolchain.prepare_plan import PrepareOptions

        names = ("quantization", "memory", "device", "opt", "overrides", "conv_template", "model_lib")
        preparing = PrepareOptions(**{name: given.pop(name) for name in names})
        if dry_run:
            console.show(preview(model, preparing), "prepare/1", bool(given.get("as_json")))
            return None
        return command(model=model, preparing=preparing, **given)

    for option in reversed((model_argument, *_OPTIONS)):
        with_model = option(with_model)
    return with_model


def prepared(model: str, preparing: PrepareOptions, continues_text: bool = True) -> PreparedModel:
    """The model's folder and library; converts and compiles what is missing, with progress on standard error.

    continues_text: whether the model must generate text; embedding models are then refused.
    """
    from mlc_toolchain.prepare import prepared_model

    def waiting() -> None:
        console.note("another process is preparing this model; waiting for it")

    with console.late_progress() as progress:
        try:
            return prepared_model(model, preparing, progress, waiting, continues_text)
        except KeyboardInterrupt:
            console.note("the same command will continue where this run stopped")
            raise
