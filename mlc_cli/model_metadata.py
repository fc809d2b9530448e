"""`mlc_cli model_metadata`: describe the model in a library."""

from __future__ import annotations

from pathlib import Path

import click

from mlc_cli import console
from mlc_cli.options import FILE, json_option


@click.command("model_metadata")
@click.argument("library", metavar="LIBRARY", type=FILE)
@click.option("--memory-only", is_flag=True, help="Print only the memory that the model needs.")
@json_option
def model_metadata(library: Path, memory_only: bool, as_json: bool) -> None:
    """Print the sizes, parameters, states and memory of the model in LIBRARY, without running it."""
    from mlc_toolchain.model_metadata import describe_library, memory_of_library

    if memory_only:
        console.show(memory_of_library(library), "model_memory/1", as_json)
        return
    facts = describe_library(library)
    if as_json:
        console.write_json("model_metadata/1", facts)
        return
    parameters = facts.pop("params")
    console.show_fields(facts)
    click.echo()
    console.table(["parameter", "dtype", "shape"], [[p["name"], p["dtype"], p["shape"]] for p in parameters])
