"""Commands and options that the documents mention exist."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from mlc_cli.__main__ import COMMANDS, cli

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
INVOCATION = re.compile(r"mlc_cli (\w+)([^`\n|#]*)")
OPTION = re.compile(r"(?<![\w-])(--?[a-z][\w-]*)")


def options_of(command: click.Command) -> set[str]:
    """The options of a command and of its subcommands."""
    own = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return own.union({"-h", "--help"}, *map(options_of, getattr(command, "commands", {}).values()))


@pytest.fixture(scope="module")
def options() -> dict[str, set[str]]:
    context = click.Context(cli)
    return {name: options_of(command) for name in COMMANDS if (command := cli.get_command(context, name))}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_what_a_document_mentions_exists(document: Path, options: dict[str, set[str]]):
    text = document.read_text()
    for name, arguments in INVOCATION.findall(text):
        assert set(OPTION.findall(arguments)) <= options.get(name, set()), f"mlc_cli {name}{arguments}"
    known = set().union(*options.values())
    assert [name for name in re.findall(r"`(--[a-z][\w-]*)", text) if name not in known] == []
