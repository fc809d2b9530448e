"""Convert a checkpoint to quantized weights: plan from the headers, then stream the tensors."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlc_errors import UnsupportedError, UsageError
from mlc_files import check_writable
from mlc_scratch import scratch_folder
from mlc_toolchain.conversion_plan import Conversion, check_choice, describe_model, plan_weights
from mlc_toolchain.conversion_report import ConvertReport, report_of, reported, write_report
from mlc_toolchain.conversion_run import run_conversion
from mlc_toolchain.dense_heads import HeadsReader
from mlc_toolchain.imatrix import read_imatrix
from mlc_toolchain.lora import LoraCheckpoint
from mlc_toolchain.mixed_bits import check_base, record_mixture
from mlc_toolchain.packed_checkpoint import open_packed
from mlc_toolchain.packed_settings import METHODS, quantization_method, unquantized
from mlc_toolchain.progress import Progress, silent
from mlc_toolchain.readers.base import CheckpointReader
from mlc_toolchain.sentence_transformers import sentence_modules, with_heads
from mlc_toolchain.source import ModelSource, open_weights, resolve_source
from mlc_toolchain.weight_stream import SAMPLE
from mlc_toolchain.writer import check_space
from quantization.schemes import SCHEMES, Scheme, get_scheme

DEVICES = ("auto", "cpu")
CHOICE_METHODS = ("search", "awq", "gptq")

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ConvertOptions:
    """Options of ``convert_weight``. source: see ``resolve_source``; weights: folder of the weights, "auto": source.

    f32_storage: "raw" stores float32 tensors exactly; "bf16" rounds them to bfloat16, as mlc_llm does.
    calibration: a text file on which activations are measured, "auto" for Python's language reference and, where many
    tokens are read, texts that the model writes, None for no calibration. imatrix: an importance matrix of llama.cpp,
    instead of a text. method: one of CHOICE_METHODS. bits: average bits per parameter of the whole model; the bits
    beyond those of ``quantization`` go to the weights where they reduce the divergence most, measured on the
    calibration text.
    report: file for a report with the quantization error of every parameter, which costs a second pass; HTML if its
    suffix is .html, else JSON.
    lora_adapter: folder of a PEFT adapter to merge into the weights. device: "cpu", or "auto" for the same.
    """

    source: str
    quantization: str
    output: Path
    model_type: str = "auto"
    weights: str = "auto"
    source_format: str = "auto"
    output_format: str = "mlc"
    f32_storage: str = "raw"
    report: Path | None = None
    lora_adapter: Path | None = None
    device: str = "auto"
    calibration: str | None = None
    imatrix: Path | None = None
    method: str = "search"
    bits: float | None = None


def convert_weight(options: ConvertOptions, progress: Progress = silent) -> ConvertReport:
    """Convert a checkpoint and write it to ``options.output``, atomically.

    A run that was interrupted continues where it stopped. Raises MLCError before anything is written when the
    checkpoint is damaged or does not match the model.
    """
    started = time.monotonic()
    conversion = plan_conversion(options)
    if options.report:
        check_writable(options.report, "the report")
    with calibrated(conversion, options, progress) as conversion:
        resumed, errors = run_conversion(conversion, options.output, None if options.report else SAMPLE, progress)
    if conversion.mixture:
        record_mixture(options.output, conversion.scheme.name)
    report = report_of(conversion, options.output, resumed, time.monotonic() - started, errors)
    if options.report:
        write_report(options.report, asdict(report), [reported(task, errors) for task in conversion.tasks])
    return report


def preview(options: ConvertOptions) -> ConvertReport:
    """Plan a conversion and report it. Raises the MLCErrors of ``convert_weight``, including that for a full disk."""
    conversion = plan_conversion(options)
    check_space(options.output, conversion.output.nbytes)
    return report_of(conversion, options.output)


def plan_conversion(options: ConvertOptions) -> Conversion:
    """Plan a conversion from config and headers alone. Raises MLCError for a checkpoint that cannot be converted."""
    scheme = get_scheme(options.quantization)
    _check_device(options.device)
    source = resolve_source(options.source)
    modules = sentence_modules(source)
    config = with_heads(source.config(), modules)
    LOG.info("found the model configuration of %r in %s", config.get("model_type"), source.path)
    LOG.info("quantizing to %s on the CPU", scheme.name)
    _check_method(options, config)
    _check_calibration(options, scheme)
    model = describe_model(unquantized(config, options.source), options.model_type, scheme)
    reader = open_packed(_open(source, options), config, options.source)
    if options.lora_adapter:
        reader = LoraCheckpoint(reader, options.lora_adapter)
    if modules and modules.heads:
        reader = HeadsReader(reader, modules.heads)
    _check_apart(reader, options.output)
    return plan_weights(model, scheme, reader, options.output_format, options.f32_storage)


@contextmanager
def calibrated(conversion: Conversion, options: ConvertOptions, progress: Progress = silent) -> Iterator[Conversion]:
    """Context manager: the conversion with the calibration and the mixture in the options, if any.

    It must be run inside the block: its statistics are in files that exist until then, beside the output or, if that is
    not writable, in the temporary folder.
    """
    if options.imatrix is not None:
        importance = read_imatrix(options.imatrix, conversion.plan.productions, conversion.model.model_type)
        files = (options.output_format, options.f32_storage)
        yield plan_weights(conversion.model, conversion.scheme, conversion.reader, *files, importance)
    elif options.calibration is not None:
        from mlc_toolchain.calibrated_conversion import calibrated_on

        beside = options.output.absolute().parent
        with scratch_folder(beside if os.access(beside, os.W_OK) else None, ".mlc-calibration-") as scratch:
            yield calibrated_on(options.calibration, conversion, options, scratch, progress)
    else:
        yield conversion


def _check_calibration(options: ConvertOptions, scheme: Scheme) -> None:
    """Raises UsageError for options that contradict each other or that the scheme does not support."""
    check_choice("--method", options.method, CHOICE_METHODS)
    if options.method != "search" and options.calibration is None:
        raise UsageError(f"--method {options.method} takes statistics of activations", hint="add --calibration auto")
    if options.bits is not None:
        check_base(scheme)
        if options.calibration is None:
            raise UsageError("--bits: where bits count is measured on a text", hint="add --calibration auto")
    if options.calibration is not None and options.imatrix is not None:
        raise UsageError("got --calibration and --imatrix; expected one of them")
    if scheme.measures_inputs and (options.method != "search" or options.imatrix is not None):
        raise UsageError(
            f"{scheme.name} takes no --imatrix and no other --method", hint="take --calibration auto alone"
        )
    if scheme.measures_inputs and options.calibration is None:
        raise UsageError(
            f"{scheme.name} takes the largest inputs of layers on a text",
            hint="convert_weight --calibration auto, or a file of text",
        )
    given = next((name for name in ("calibration", "imatrix") if getattr(options, name) is not None), None)
    if given and not scheme.can_calibrate:
        expected = ", ".join(name for name, known in SCHEMES.items() if known.can_calibrate)
        raise UsageError(f"--{given}: {scheme.name} has nothing to choose; expected one of {expected}")


def _check_device(device: str) -> None:
    if device not in DEVICES:
        raise UnsupportedError(
            f"--device: got {device!r}; expected {' or '.join(DEVICES)}",
            hint="weights are quantized on the CPU, for every device that the model is compiled for",
        )


def _open(source: ModelSource, options: ConvertOptions) -> CheckpointReader:
    files = "auto" if options.source_format in METHODS else options.source_format
    return source.weights(files) if options.weights == "auto" else open_weights(options.weights, files)


def _check_method(options: ConvertOptions, config: Mapping[str, Any]) -> None:
    """Raises UsageError if the source format and the configuration name different quantization methods."""
    wanted, found = options.source_format, quantization_method(config, options.source)
    if wanted in METHODS and wanted != found:
        raise UsageError(f"--source-format {wanted}: the quant_method of config.json is {found}", hint="use auto")


def _check_apart(reader: CheckpointReader, output: Path) -> None:
    """Raises UsageError if the output folder is the checkpoint's folder."""
    inside = next((path for path in reader.files() if path.parent.resolve() == output.resolve()), None)
    if inside is not None:
        raise UsageError(
            f"the output folder holds the checkpoint's {inside.name}; expected another folder", where=[str(output)]
        )
