"""`mlc_cli compile`: compile a model folder to one native library."""

from __future__ import annotations

import gc
from pathlib import Path

import click

from mlc_cli import console
from mlc_cli.options import (
    FOLDER,
    MODEL,
    device_option,
    json_option,
    kv_cache_dtype_option,
    model_type_option,
    output_file_option,
    verbose_option,
)
from mlc_errors import UsageError

COLLECT_AFTER = 100_000
"""Garbage collection threshold in allocations; large, because the compiler's trees have no cycles."""


@click.command("compile")
@click.argument("model", metavar="MODEL", type=MODEL)
@click.option("--quantization", metavar="NAME", help="Quantization scheme. Default: the config's.")
@model_type_option
@device_option
@click.option(
    "--host",
    default="auto",
    show_default=True,
    metavar="TRIPLE",
    help="Cross-compile for another CPU: aarch64-linux-gnu.",
)
@click.option(
    "--opt",
    default="O3",
    show_default=True,
    metavar="LEVEL",
    help="O0 plain loops, O1 fusion, O2 schedules, O3 integer matmuls on CPUs; or KEY=VALUE;... of "
    "fusion=0|1, schedules=0|1, act=8|16|exact (bits of activations).",
)
@click.option(
    "--overrides", default="", metavar="K=V;...", help="Sizes to override: context_window_size=2048;max_batch_size=4."
)
@kv_cache_dtype_option
@click.option("--draft-heads", is_flag=True, help="Add the functions that draft heads take (EAGLE, Medusa, mtp).")
@click.option("--debug-dump", type=FOLDER, metavar="DIR", help="Write the module after each phase, as text.")
@click.option("--emit", multiple=True, metavar="KIND", help="Also write the library's code as text: llvm, asm, ptx.")
@click.option("--enable-subgroups", is_flag=True, hidden=True)
@click.option(
    "--system-lib-prefix",
    default="auto",
    metavar="NAME",
    help="Prefix of the symbols in a .o, .a or .tar, so that several libraries can be linked into one program.",
)
@click.option(
    "--tune",
    default="",
    metavar="TIME|DIR",
    help="Search for faster schedules first, for a time such as 90s or 10m; or apply the database DIR that tune made.",
)
@click.option(
    "--keep-weights",
    is_flag=True,
    help="Also write MODEL's weights as the library packs them to a file beside it, which is mapped at loading. "
    "For CPUs; takes the weights' room once more.",
)
@output_file_option
@verbose_option
@json_option
def compile_command(
    model: str,
    quantization: str | None,
    model_type: str,
    device: str,
    host: str,
    opt: str,
    overrides: str,
    kv_cache_dtype: str,
    draft_heads: bool,
    debug_dump: Path | None,
    emit: tuple[str, ...],
    enable_subgroups: bool,
    system_lib_prefix: str,
    tune: str,
    keep_weights: bool,
    output: Path,
    as_json: bool,
) -> None:
    """Compile MODEL to one native library.

    The suffix of the output selects its type: .so a shared library; .o, .a or .tar (objects) for static linking; .s
    assembly; .ll LLVM IR. MODEL is a folder with mlc-chat-config.json (the output of gen_config), that file,
    or HF://owner/name[@revision] of such a folder.
    """
    gc.set_threshold(COLLECT_AFTER)
    from mlc_toolchain.compile import CompileOptions, compile_model

    gc.freeze()
    if enable_subgroups:
        raise UsageError("--enable-subgroups concerns WebGPU, which is no target of this compiler")
    options = CompileOptions(
        model=model,
        device=device,
        host=host,
        opt=opt,
        output=output,
        overrides=overrides,
        kv_cache_dtype=kv_cache_dtype,
        draft_heads=draft_heads,
        quantization=quantization,
        model_type=model_type,
        debug_dump=debug_dump,
        emit=emit,
        system_lib_prefix=system_lib_prefix,
        tune=tune,
        keep_weights=keep_weights,
    )
    with console.progress(as_json) as progress:
        report = compile_model(options, progress=progress)
    console.show(report, "compile/1", as_json, json_only=["seconds_per_phase"])
