"""`mlc_cli inspect`: describe a library, a model folder or a checkpoint."""

from __future__ import annotations

import click

from mlc_cli import console
from mlc_cli.options import MODEL, json_option

TABLES = ("functions", "libraries", "tensors")


@click.command("inspect")
@click.argument("path", metavar="PATH", type=MODEL)
@click.option("--tensors", is_flag=True, help="List all tensors.")
@json_option
def inspect_path(path: str, tensors: bool, as_json: bool) -> None:
    """Describe PATH without running it: a library, a model folder, a checkpoint folder, a .gguf file, a preset.

    For a library: target, options, functions, states, memory. For a checkpoint: architecture, whether it is
    supported, and the size of the weights in common quantization schemes.
    """
    from mlc_toolchain.inspection import inspect

    found = inspect(path)
    if not tensors:
        found.pop("tensors", None)
    if as_json:
        console.write_json("inspect/1", found)
        return
    rows = {name: found.pop(name) for name in TABLES if found.get(name)}
    console.show_fields(found)
    for name, listed in rows.items():
        click.echo(f"\n{name}")
        console.table(list(listed[0]), [list(row.values()) for row in listed])
