"""`mlc_cli check_kernels`: run the kernels of a model in the PTX simulator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from mlc_cli import console
from mlc_cli.options import MODEL, json_option, kv_cache_dtype_option

if TYPE_CHECKING:
    from mlc_toolchain.check_kernels import CheckReport
    from mlc_toolchain.kernel_checker import KernelCheck

SHOWN = 2  # functions that launch a kernel
COLUMNS = (
    "kernel",
    "launches",
    "registers",
    "shared",
    "stack",
    "occupancy",
    "instructions",
    "fetched",
    "written",
    "sectors",
    "fewest",
    "conflicts",
    "barriers",
    "error",
    "result",
)


@click.command("check_kernels")
@click.argument("model", metavar="MODEL", type=MODEL)
@click.option("--quantization", metavar="NAME", help="Quantization scheme. Default: the config's.")
@click.option("--device", default="cuda", show_default=True, metavar="TARGET", help="A CUDA target: cuda:sm_90a.")
@kv_cache_dtype_option
@json_option
def check_kernels(model: str, quantization: str | None, device: str, kv_cache_dtype: str, as_json: bool) -> int:
    """Run every kernel of MODEL in a PTX simulator and compare the results with the CPU's. Needs no GPU.

    MODEL is a folder with mlc-chat-config.json or the name of a preset; its number of layers, heads, columns and tokens
    is reduced. The simulator finds races, out-of-bounds accesses, uninitialized reads, missing waits and wrong results;
    the exit status is then 1.

    \b
    launches      launches in one call of each exported function
    registers     registers per thread; shared, stack: bytes per block and per thread
    occupancy     share of a multiprocessor's threads that can be resident
    instructions  warp instructions of all launches
    fetched       bytes read from global memory; written: bytes written to it
    sectors       32-byte sectors per load; fewest: the minimum for the bytes loaded
    conflicts     shared memory passes, relative to the minimum without bank conflicts
    error         relative to the largest element of the function's results
    """
    from mlc_toolchain.check_kernels import CheckOptions
    from mlc_toolchain.check_kernels import check_kernels as check

    with console.progress(as_json) as progress:
        report = check(CheckOptions(model, device, quantization, kv_cache_dtype), progress)
    if as_json:
        console.write_json("check_kernels/1", report)
    else:
        _print(report)
    return 1 if report.problems else 0


def _print(report: CheckReport) -> None:
    click.echo(f"target {report.target}")
    if report.shrunk:
        click.echo("made smaller: " + ", ".join(f"{n} {a} to {b}" for n, (a, b) in report.shrunk.items()))
    console.table(COLUMNS, map(_row, report.kernels))
    click.echo()
    rows = [(f.function, f.launches, f"{f.error:.1e}", f.problem or "ok") for f in report.functions]
    console.table(("function", "launches", "error", "result"), rows)


def _row(kernel: KernelCheck) -> tuple[object, ...]:
    c, r = kernel.counts, kernel.resources
    requests, wavefronts = max(c.global_load_requests, 1), max(c.ideal_wavefronts, 1)
    return (
        kernel.kernel,
        _launches(kernel.launches),
        r.registers,
        r.shared_bytes,
        r.stack_bytes,
        f"{r.occupancy:.2f}",
        c.warp_instructions,
        c.global_bytes_read,
        c.global_bytes_written,
        f"{c.global_load_sectors / requests:.1f}",
        f"{c.global_bytes_read / 32 / requests:.1f}",
        f"{c.shared_wavefronts / wavefronts:.2f}",
        c.barriers,
        "-" if kernel.error is None else f"{kernel.error:.1e}",
        kernel.problem or ("ok" if kernel.launches else "not run"),
    )


def _launches(launches: Mapping[str, int]) -> str:
    """The first functions with their numbers of launches, and the number of further functions."""
    shown = [f"{name}:{count}" for name, count in list(launches.items())[:SHOWN]]
    return " ".join([*shown, *([f"+{len(launches) - SHOWN}"] if len(launches) > SHOWN else [])]) or "0"
