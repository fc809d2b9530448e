"""`mlc_cli convert_weight`: quantize a checkpoint."""

from __future__ import annotations

from pathlib import Path

import click

from mlc_cli import console
from mlc_cli.options import (
    FILE,
    FOLDER,
    json_option,
    model_type_option,
    output_folder_option,
    quantization_option,
    source_argument,
    verbose_option,
)


@click.command("convert_weight")
@source_argument
@quantization_option
@model_type_option
@click.option("--device", default="auto", show_default=True, metavar="NAME", help="Device that quantizes: auto or cpu.")
@click.option(
    "--source",
    "weights",
    default="auto",
    show_default=True,
    metavar="DIR",
    help="Folder of the weights. Default: the config's.",
)
@click.option(
    "--source-format",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="Format of the checkpoint: auto, safetensors, pytorch, awq, gptq, fp8, mxfp4, modelopt, compressed-tensors.",
)
@click.option(
    "--output-format", default="mlc", show_default=True, metavar="NAME", help="Format to write: mlc or safetensors."
)
@click.option(
    "--f32-storage",
    default="raw",
    show_default=True,
    metavar="NAME",
    help="Storage of float32 tensors: raw, or rounded to bf16.",
)
@click.option("--lora-adapter", type=FOLDER, metavar="DIR", help="PEFT adapter to merge into the weights.")
@click.option("--calibration", metavar="TEXT", help="Minimize the error of layer outputs on a text file, or auto.")
@click.option("--imatrix", type=FILE, metavar="FILE", help="Importance matrix of llama.cpp, instead of a text.")
@click.option(
    "--method",
    default="search",
    show_default=True,
    metavar="NAME",
    help="With a text: search (of scales), awq (of channels' factors, too) or gptq (error feedback).",
)
@click.option(
    "--bits",
    type=float,
    metavar="N",
    help="Average bits per parameter of the whole model: sensitive weights get more bits than the scheme's.",
)
@click.option(
    "--report", type=FILE, metavar="FILE", help="Write sizes and quantization errors as JSON, or as a page (.html)."
)
@click.option("--dry-run", is_flag=True, help="Report what would be written, reading only file headers.")
@click.option("--show-mapping", is_flag=True, help="Print which tensors are combined into which parameter, and stop.")
@output_folder_option
@verbose_option
@json_option
def convert_weight(
    source: str,
    quantization: str,
    model_type: str,
    device: str,
    weights: str,
    source_format: str,
    output_format: str,
    f32_storage: str,
    lora_adapter: Path | None,
    calibration: str | None,
    imatrix: Path | None,
    method: str,
    bits: float | None,
    report: Path | None,
    dry_run: bool,
    show_mapping: bool,
    output: Path,
    as_json: bool,
) -> None:
    """Quantize MODEL's weights and write them to DIR.

    MODEL is a Hugging Face folder, its config.json, a .gguf file or HF://owner/name[@revision]. An
    interrupted run continues where it stopped.
    """
    import mlc_toolchain.convert_weight as toolchain

    options = toolchain.ConvertOptions(
        source=source,
        device=device,
        quantization=quantization,
        output=output,
        model_type=model_type,
        weights=weights,
        source_format=source_format,
        output_format=output_format,
        f32_storage=f32_storage,
        calibration=calibration,
        imatrix=imatrix,
        method=method,
        bits=bits,
        report=report,
        lora_adapter=lora_adapter,
    )
    if show_mapping:
        plan = toolchain.plan_conversion(options).plan
        if as_json:
            console.write_json("convert_weight_mapping/1", plan.to_dict())
        else:
            click.echo(plan)
    elif dry_run:
        console.show(toolchain.preview(options), "convert_weight/1", as_json)
    else:
        try:
            with console.progress(as_json) as progress:
                result = toolchain.convert_weight(options, progress)
        except KeyboardInterrupt:
            console.note("the same command will continue where this run stopped")
            raise
        console.show(result, "convert_weight/1", as_json, json_only={"mixture"})
        if result.mixture and not as_json:
            console.table(
                ("first", "last", "scheme", "bits", "divergence of the base"),
                [(r.first, r.last, r.scheme, r.bits, f"{r.divergence:.5f}") for r in result.mixture],
            )
