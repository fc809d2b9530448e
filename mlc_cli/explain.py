"""`mlc_cli explain`: describe an error code and how to resolve it."""

from __future__ import annotations

from typing import NamedTuple

import click

from mlc_cli import console
from mlc_cli.options import json_option
from mlc_errors import UsageError


class Explanation(NamedTuple):
    """An error code. title: summary; meaning: when it occurs; help: what to do; exit_code: of the command."""

    title: str
    meaning: str
    help: str
    exit_code: int


MODELS = "models"
EXPLANATIONS = {
    "MLC1": Explanation(
        "something given cannot be used",
        "A file is missing or has other contents than it should, or a step failed for a reason that the message names.",
        "Look at the files under `in`; `mlc_cli verify FOLDER` checks a model folder. MLC_DEBUG=1 shows the traceback.",
        1,
    ),
    "MLC2": Explanation(
        "a command, option or value is wrong",
        "The command line, or an argument of the Python interface, is not one of those that are expected.",
        "The message lists what is expected; `mlc_cli COMMAND --help` has all options.",
        2,
    ),
    "MLC3": Explanation(
        "recognised, but not supported",
        "The model, file format or target is known, and this version has no code for it.",
        "`mlc_cli explain models` lists the models; `mlc_cli inspect PATH` says what a checkpoint is.",
        3,
    ),
    "MLC4": Explanation(
        "not enough memory or disk, or a device is missing",
        "The work is right, and this machine cannot do it now.",
        "`mlc_cli doctor` says what there is, `ulimit -v` a limit of addresses. Smaller: --quantization q4f16_1, "
        "--overrides context_window_size=4096. `mlc_cli cache prune --all` frees disk space.",
        4,
    ),
    "MLC5": Explanation(
        "a bug in the compiler",
        "The input is valid and the compiler failed.",
        "Please report it, with the model's configuration and the command; --opt O1 or O0 may avoid it.",
        1,
    ),
    "MLC6": Explanation(
        "a checkpoint is damaged or incomplete",
        "A file of a checkpoint is not what its name or its header says: cut off, overlapping, or not of that format.",
        "Download it again; compare its size with the publisher's.",
        1,
    ),
    "MLC7": Explanation(
        "a checkpoint does not fit the model",
        "Tensors are missing, left over or of another shape than config.json says.",
        "`mlc_cli convert_weight MODEL --show-mapping` shows what is expected; is config.json that of the weights?",
        1,
    ),
    "MLC8": Explanation(
        "the text of a module cannot be parsed",
        "A file with TVMScript has an error at the line and column under `in`.",
        "`mlc_cli compile MODEL -o lib.so --debug-dump DIR` writes valid files, after each pass one.",
        1,
    ),
    "MLC9": Explanation(
        "a module is not well formed",
        "A module that was parsed, or that a pass or a program made, breaks a rule of the IR.",
        "The place is under `in`; `mlc_cli ir_opt FILE -p verify` checks a file alone.",
        1,
    ),
}


@click.command("explain")
@click.argument("code", metavar="[CODE]", required=False)
@json_option
def explain(code: str | None, as_json: bool) -> None:
    """Explain the error CODE and how to resolve it; without CODE, list all codes. CODE `models` lists the models."""
    if code is None:
        _show_all(as_json)
        return
    if code.lower() == MODELS:
        _show_models(as_json)
        return
    found = EXPLANATIONS.get(code.upper())
    if found is None:
        raise UsageError(f"no error has the code {code!r}; expected {MODELS}, or one of {', '.join(EXPLANATIONS)}")
    if as_json:
        console.write_json("explain/1", {"codes": [_as_dict(code.upper())]})
    else:
        click.echo(f"{code.upper()}: {found.title} (exit code {found.exit_code})\n\n{found.meaning}\n\n{found.help}")


def _show_models(as_json: bool) -> None:
    from model_zoo.registry import ARCHITECTURES

    names = sorted(ARCHITECTURES)
    if as_json:
        console.write_json("explain/1", {"models": names})
    else:
        click.echo(f"Models, by the model_type of their config.json:\n{', '.join(names)}")


def _show_all(as_json: bool) -> None:
    if as_json:
        console.write_json("explain/1", {"codes": list(map(_as_dict, EXPLANATIONS))})
    else:
        console.table(
            ["code", "exit", "meaning"], [[c, found.exit_code, found.title] for c, found in EXPLANATIONS.items()]
        )


def _as_dict(code: str) -> dict[str, object]:
    return {"code": code, **EXPLANATIONS[code]._asdict()}
