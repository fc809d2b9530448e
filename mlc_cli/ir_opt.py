"""`mlc_cli ir_opt`: run named passes over a module given as text and print the result."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from mlc_cli import console
from mlc_cli.options import FILE, device_option, json_option
from mlc_errors import UsageError

PASSES = """\b
Passes, in the order in which a compilation runs them (--list describes each):
  inline-calls eliminate-dead make-entries resolve-match-casts keep-schedules
  verify fold-constants common-subexpressions channels-last fuse-attention absorb-transposes
  legalize annotate-patterns fuse-ops fuse-tensor-functions copy-results
  count-operations mark-activations quantized-matmuls bfloat16-matmuls
  apply-schedules pack-layouts
  lower-blocks lift-allocs peel-guards vectorize-short-loops interleave-reductions
  plan-memory observe-kernels place-barriers lower-math
"""


@click.command("ir_opt", epilog=PASSES)
@click.argument("file", required=False, metavar="FILE", type=FILE)
@click.option(
    "-p", "--pass", "passes", multiple=True, metavar="NAME[:K=V,...],...", help="Passes to run; may be repeated."
)
@device_option
@click.option("-o", "--output", type=FILE, metavar="FILE", help="File to write, instead of standard output.")
@click.option("--list", "list_passes", is_flag=True, help="List the passes and exit.")
@json_option
def ir_opt(
    file: Path | None, passes: tuple[str, ...], device: str, output: Path | None, list_passes: bool, as_json: bool
) -> None:
    """Run passes over the module in FILE and print the result.

    FILE holds TVMScript, a module or a single function, for example written by `compile --debug-dump`. Without passes
    it is only parsed and printed. Large constants are stored outside of the text: those of FILE.py in FILE.npz.
    """
    from mlc_compiler.script.files import write_script
    from mlc_compiler.target import Target
    from mlc_toolchain.ir_opt import known_passes, run_passes

    if list_passes:
        _show_passes({name: _summary(kind) for name, kind in known_passes(Target(device)).items()}, as_json)
        return
    if file is None:
        raise UsageError("no file given", hint="see `mlc_cli ir_opt --help`")
    printed = run_passes(file, passes, device)
    if output is not None:
        write_script(output, printed)
    if as_json:
        text = printed.text if output is None else None
        console.write_json("ir_opt/1", {"output": output, "text": text, "constants": len(printed.constants)})
        return
    if output is not None:
        return
    click.echo(printed.text)
    if printed.constants:
        console.note(f"{len(printed.constants)} constants are not part of the text; with --output they are in a file")


def _show_passes(passes: Mapping[str, str], as_json: bool) -> None:
    if as_json:
        found = [{"name": name, "does": summary} for name, summary in passes.items()]
        console.write_json("ir_opt_passes/1", {"passes": found})
    else:
        console.table(["pass", "does"], list(passes.items()))


def _summary(kind: type) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0].replace("``", "")
