"""`python -m mlc_cli`: the table of commands, and the conversion of exceptions to messages and exit codes."""

from __future__ import annotations

import difflib
import errno
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NamedTuple

import click

from mlc_cli import interrupts
from mlc_cli.console import open_streams, to_json
from mlc_cli.interrupts import EXIT_INTERRUPTED
from mlc_errors import (
    FULL_DISK,
    MLCError,
    ResourceError,
    UnsupportedError,
    UsageError,
    address_limit,
    address_space,
    check_address_space,
    out_of_memory,
)
from mlc_version import __version__

PROGRAM = "mlc_cli"
LEAST_ADDRESSES = 256 << 20
"""Free address space in bytes below which a failure is reported as lack of address space; larger than any library."""
ADDRESSES_AT_START = 320 << 20
"""Address space in bytes needed to start, for Python, LLVM and numpy, whose library aborts the process with less."""
M_ARENA_MAX = -8  # of malloc.h
DEBUG_HINT = "set MLC_DEBUG=1 to see the traceback"
COMPILER = frozenset({"mlc_compiler", "mlc_evaluation", "mlc_toolchain", "model_zoo", "quantization"})
"""Packages that the distribution mlc-cli-runtime lacks, wholly or partly."""


class Row(NamedTuple):
    """A command: `module:attribute` of its click command, imported when it runs, and its summary in `--help`."""

    target: str
    summary: str


COMMANDS = {
    "convert_weight": Row("mlc_cli.convert_weight:convert_weight", "Quantize a checkpoint's weights."),
    "gen_config": Row("mlc_cli.gen_config:gen_config", "Write mlc-chat-config.json and the tokenizer files."),
    "compile": Row("mlc_cli.compile:compile_command", "Compile a model to one native library."),
    "tune": Row("mlc_cli.tune:tune", "Search for faster schedules of a model's kernels."),
    "model_metadata": Row("mlc_cli.model_metadata:model_metadata", "Describe the model in a compiled library."),
    "generate": Row("mlc_cli.generate:generate", "Answer or complete a prompt with a model."),
    "chat": Row("mlc_cli.chat:chat", "Chat with a model in the terminal."),
    "embed": Row("mlc_cli.embed:embed", "Compute text embeddings with a model."),
    "inspect": Row("mlc_cli.inspect_path:inspect_path", "Describe a library, a model folder or a checkpoint."),
    "verify": Row("mlc_cli.verify:verify", "Check the files of a model folder."),
    "bench": Row("mlc_cli.bench:bench", "Measure speed and memory of a model; time its kernels."),
    "eval": Row("mlc_cli.evaluate:evaluate", "Measure perplexity, divergence and multiple-choice accuracy."),
    "cache": Row("mlc_cli.cache:cache", "List and remove converted and compiled models."),
    "doctor": Row("mlc_cli.doctor:doctor", "Describe this machine and report what is missing."),
    "explain": Row("mlc_cli.explain:explain", "Explain an error code."),
    "schema": Row("mlc_cli.schema:schema", "Print the JSON schema of what a command prints with --json."),
    "check_kernels": Row("mlc_cli.check_kernels:check_kernels", "Check a model's GPU kernels in a simulator."),
    "debug_chat": Row("mlc_cli.debug_chat:debug_chat", "Dump every kernel's results, or find a wrong kernel."),
    "debug_compare": Row("mlc_cli.debug_compare:debug_compare", "Compare the kernels of two libraries of a model."),
    "ir_opt": Row("mlc_cli.ir_opt:ir_opt", "Run compiler passes over an IR file and print the result."),
}


class CommandTable(click.Group):
    """A group whose commands are imported when they run, so that `--help` imports only click."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        row = COMMANDS.get(cmd_name)
        if row is None:
            return None
        module, attribute = row.target.split(":")
        return getattr(importlib.import_module(module), attribute)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args[0].startswith("-") else args[0].replace("-", "_")
        check_address_space("the tool", ADDRESSES_AT_START)
        _use_one_arena()
        if name not in COMMANDS and not name.startswith("-"):
            raise _unknown_command(args[0])
        return super().resolve_command(ctx, [name, *args[1:]])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, row.summary) for name, row in COMMANDS.items()])


@click.command(cls=CommandTable, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name=PROGRAM)
def cli() -> None:
    """Compile a language model to one native library and run it.

    \b
    mlc_cli generate       MODEL --prompt "Hello"

    The same step by step, in a folder of your own:

    \b
    mlc_cli convert_weight MODEL --quantization q4f16_1 -o DIR
    mlc_cli gen_config     MODEL --quantization q4f16_1 -o DIR
    mlc_cli compile        DIR -o DIR/lib.so
    mlc_cli generate       DIR --prompt "Hello"
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns 0 success, 1 failure, 2 usage, 3 unsupported, 4 missing resource or 130 interrupted."""
    open_streams()
    interrupts.install()
    try:
        status = cli.main(args=argv, prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _leave_pipe()
    except MemoryError as exc:
        traceback.clear_frames(exc.__traceback__)  # what the command has made
        return _report(exc, _wants_json(argv))
    except Exception as exc:
        return _report(exc, _wants_json(argv))
    return status if isinstance(status, int) else 0


def _wants_json(argv: Sequence[str] | None) -> bool:
    return "--json" in (sys.argv[1:] if argv is None else argv)


def _report(exc: Exception, as_json: bool) -> int:
    if os.environ.get("MLC_DEBUG"):
        traceback.print_exception(exc)
    if isinstance(exc, click.exceptions.NoArgsIsHelpError):
        click.echo(exc.format_message(), err=True)
        return exc.exit_code
    failure = _as_failure(exc)
    text = (
        to_json({"schema": "error/1", "error": failure.to_dict()})
        if as_json
        else f"error: {failure}\n  more {PROGRAM} explain {failure.code}"
    )
    click.echo(text, err=True)
    return failure.exit_code


def _as_failure(exc: Exception) -> MLCError:
    """Convert an exception to the MLCError that is reported: message, location, hint and exit code."""
    match exc:
        case MLCError():
            return exc
        case click.UsageError():
            command = exc.ctx.command_path if exc.ctx else PROGRAM
            return UsageError(exc.format_message().rstrip("."), hint=f"see `{command} --help`")
        case click.ClickException():
            return MLCError(exc.format_message())
        case ModuleNotFoundError(name=str() as name) if name.partition(".")[0] in COMPILER:
            return UnsupportedError(
                "mlc-cli-runtime is installed, which only runs models that are compiled already",
                hint="name a folder with lib.so, or pip install mlc-cli instead",
            )
        case MemoryError():
            return out_of_memory()
        case OSError(errno=errno.ENOMEM):
            return out_of_memory(str(exc))
        case OSError(errno=number) if number in FULL_DISK:
            return ResourceError(f"no space left on the disk: {exc.filename or exc}")
        case _ if _lacks_addresses():
            return out_of_memory(_first_line(exc))
        case OSError(filename=str() as filename):
            return MLCError(f"{filename}: {exc.strerror}")
        case _:
            return MLCError(f"unexpected {type(exc).__name__}: {_first_line(exc)}", hint=DEBUG_HINT)


def _lacks_addresses() -> bool:
    """Whether the process is so close to its address space limit that imports, threads or files may fail."""
    space = address_space()
    return space is not None and space[0] - space[1] < LEAST_ADDRESSES


def _use_one_arena() -> None:
    """Under an address limit, let glibc's malloc take no arenas for threads: each reserves 64 MB of addresses."""
    if address_limit() is not None:
        import ctypes

        if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
            mallopt(M_ARENA_MAX, 1)


def _first_line(exc: Exception) -> str:
    return next(iter(str(exc).splitlines()), "no message")


def _unknown_command(name: str) -> UsageError:
    near = difflib.get_close_matches(name.replace("-", "_"), COMMANDS, n=2)
    hint = f"did you mean {' or '.join(near)}?" if near else f"see `{PROGRAM} --help`"
    return UsageError(f"no command {name!r}; expected one of {', '.join(COMMANDS)}", hint=hint)


def _leave_pipe() -> int:
    """Handle a closed stdout (`| head`): discard the rest, including what the interpreter flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


if __name__ == "__main__":
    sys.exit(main())
