"""Conversions whose codes and bits are chosen for a text, on which an 8-bit model measures the layers' inputs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mlc_errors import UsageError
from mlc_toolchain.bit_allocation import allocate, bits_per_weight, mixture_parts
from mlc_toolchain.calibrated_weights import Calibration
from mlc_toolchain.calibration import (
    MANY_TOKENS,
    OWN_TEXTS,
    SCHEME,
    TOKENS,
    CalibratedModel,
    calibration_ids,
    small_chunks,
)
from mlc_toolchain.channel_scaling import scale_channels
from mlc_toolchain.checkpoint_config import checkpoint_config
from mlc_toolchain.conversion_plan import Conversion, describe, plan_weights
from mlc_toolchain.conversion_run import run_conversion
from mlc_toolchain.generation_defaults import generation_defaults
from mlc_toolchain.mixed_bits import Mixture, MixtureRow
from mlc_toolchain.output_layout import OutputFormat
from mlc_toolchain.progress import Progress, silent
from mlc_toolchain.sensitivity import CoarseWeights, measured_units
from mlc_toolchain.source import resolve_source
from mlc_toolchain.source_tokenizer import source_tokenizer
from model_zoo import registry
from quantization.schemes import Scheme, get_scheme, mixture_name

if TYPE_CHECKING:
    from mlc_toolchain.convert_weight import ConvertOptions

LOG = logging.getLogger(__name__)


def calibrated_on(
    text: str, conversion: Conversion, options: ConvertOptions, scratch: Path, progress: Progress = silent
) -> Conversion:
    """The conversion with statistics of a text and, with ``options.bits``, a mixture of schemes.

    text: a file, or "auto". scratch: a folder for the model in 8 bits and for statistics.
    """
    reader, files = conversion.reader, (options.output_format, options.f32_storage)
    model, ids = _calibrated_model(text, conversion, options, scratch, progress)
    if conversion.scheme.measures_inputs:
        calibration = model.measure_inputs(ids)
    else:
        calibration = model.calibrate(ids, feedback=options.method == "gptq")
    if options.bits is None:
        made = plan_weights(conversion.model, conversion.scheme, reader, *files, calibration)
        return _scaled(made, model, calibration) if options.method == "awq" else made
    base = plan_weights(conversion.model, conversion.scheme, reader, calibration=replace(calibration, products={}))
    run_conversion(base, scratch / "base")
    coarse = CoarseWeights(scratch / "base", conversion.model.parameters, conversion.model.quantized)
    bits = float(options.bits)
    mixture = _chosen_mixture(model, coarse, ids, conversion.scheme, conversion.output, bits, progress)
    mixed = describe(model.architecture, model.config, mixture.scheme)
    made = plan_weights(mixed, mixture.scheme, reader, *files, calibration, mixture)
    return _scaled(made, model, calibration) if options.method == "awq" else made


def _scaled(conversion: Conversion, model: CalibratedModel, calibration: Calibration) -> Conversion:
    plain = registry.export(model.architecture, model.config)
    return scale_channels(conversion, plain, replace(calibration, source={**calibration.source, "method": "awq"}))


def most_tokens(options: ConvertOptions, scheme: Scheme) -> int:
    """The largest number of tokens that are read of a text for a conversion to ``scheme``."""
    only_squares = options.method != "gptq" and options.bits is None and not scheme.measures_inputs
    return TOKENS if only_squares else MANY_TOKENS


def _calibrated_model(
    text: str, conversion: Conversion, options: ConvertOptions, scratch: Path, progress: Progress
) -> tuple[CalibratedModel, Sequence[int]]:
    """The model in 8 bits, written to ``scratch``, and the token ids of a text.

    With "auto" and statistics of many numbers, texts that the model writes are read, too.
    """
    source, most = resolve_source(options.source), most_tokens(options, conversion.scheme)
    ids, where = calibration_ids(text, source, most)
    architecture = registry.get(conversion.model.model_type)
    config = architecture.config.from_hf(checkpoint_config(source))
    folder = scratch / "model"
    run_conversion(plan_weights(describe(architecture, config, SCHEME), SCHEME, conversion.reader), folder)
    model = CalibratedModel(architecture, small_chunks(config), folder, progress)
    own: list[int] = []
    if text == "auto" and most > TOKENS:
        defaults = generation_defaults({}, checkpoint_config(source), source_tokenizer(source))
        own = model.own_text([defaults.bos_token_id] * OWN_TEXTS)
    LOG.info("calibrating on %d tokens of %s and %d of the model's own", len(ids), where, len(own))
    return model, [*own, *ids]


def _chosen_mixture(
    model: CalibratedModel,
    coarse: CoarseWeights,
    ids: Sequence[int],
    base: Scheme,
    plain: OutputFormat,
    bits: float,
    progress: Progress,
) -> Mixture:
    """Choose a mixture of at most ``bits`` bits per parameter of the whole model.

    coarse: the weights in the base scheme. plain: the output if all weights are in the base scheme. Raises UsageError
    if that already has more bits.
    """
    if bits < plain.bits_per_parameter:
        raise UsageError(f"--bits: got {bits:g}; expected at least the {plain.bits_per_parameter:.2f} of {base.name}")
    units = measured_units(model, coarse, ids, progress)
    schemes = allocate(units, base, (bits - plain.bits_per_parameter) * plain.source_elements)
    rows = [
        MixtureRow(
            unit.described(unit.names[0]),
            unit.described(unit.names[-1]),
            scheme.name,
            bits_per_weight(scheme),
            unit.divergence,
        )
        for unit, scheme in zip(units, schemes, strict=True)
    ]
    parts = mixture_parts(units, schemes, base)
    return Mixture(get_scheme(mixture_name(base.name, parts)) if parts else base, tuple(rows))
