"""Mixtures of schemes whose size a user names: measured, chosen, and recorded where the model is compiled from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlc_errors import UsageError
from mlc_toolchain.bit_allocation import allocate, bits_per_weight, mixture_parts
from mlc_toolchain.calibration import CalibratedModel
from mlc_toolchain.chat_config import FILE_NAME
from mlc_toolchain.output_layout import MLC_INDEX, OutputFormat
from mlc_toolchain.progress import Progress, silent
from mlc_toolchain.readers.bounded_json import read_json_object
from mlc_toolchain.sensitivity import CoarseWeights, measured_units
from mlc_toolchain.text_files import write_files
from quantization.schemes import Scheme, get_scheme, mixture_name

QUANTIZATION = "Quantization"
"""The key of the mixture's name in the metadata of weights."""


@dataclass(frozen=True)
class MixtureRow:
    """Weights that have one scheme together. divergence: in nats, when they alone have the codes of the base."""

    first: str
    last: str
    scheme: str
    bits: float
    divergence: float


@dataclass(frozen=True)
class Mixture:
    """A chosen mixture: its scheme, and what it was chosen by."""

    scheme: Scheme
    rows: tuple[MixtureRow, ...]


def check_base(scheme: Scheme) -> None:
    """Raise UsageError for a scheme that no mixture can be made of."""
    if scheme.kind != "group" or not scheme.can_calibrate or scheme.parts:
        raise UsageError(
            f"--bits: {scheme.name} cannot be the base of a mixture", hint="use --quantization q4f16_nl or q4f16_1"
        )


def chosen_mixture(
    model: CalibratedModel,
    coarse: CoarseWeights,
    ids: Sequence[int],
    base: Scheme,
    plain: OutputFormat,
    bits: float,
    progress: Progress = silent,
) -> Mixture:
    """A mixture of at most ``bits`` bits per parameter of the whole model, which has ``plain`` in the base alone.

    coarse: the weights in the base. Raises UsageError where the base alone has more.
    """
    if bits < plain.bits_per_parameter:
        raise UsageError(f"--bits: got {bits:g}; expected at least the {plain.bits_per_parameter:.2f} of {base.name}")
    units = measured_units(model, coarse, ids, progress)
    schemes = allocate(units, base, (bits - plain.bits_per_parameter) * plain.source_elements)
    rows = [
        MixtureRow(unit.names[0], unit.names[-1], scheme.name, bits_per_weight(scheme), unit.divergence)
        for unit, scheme in zip(units, schemes, strict=True)
    ]
    parts = mixture_parts(units, schemes, base)
    return Mixture(get_scheme(mixture_name(base.name, parts)) if parts else base, tuple(rows))


def recorded_mixture(folder: Path, base: str) -> str:
    """The name of the mixture of the weights in a folder, if these have one of the scheme ``base``; else ``base``."""
    if not (folder / MLC_INDEX).is_file():
        return base
    metadata = read_json_object(folder / MLC_INDEX).get("metadata")
    name = metadata.get(QUANTIZATION) if isinstance(metadata, dict) else None
    return name if isinstance(name, str) and name.split(",")[0] == get_scheme(base).name else base


def record_mixture(folder: Path, name: str) -> None:
    """Put the mixture into the folder's mlc-chat-config.json, if it has one, from which the model is compiled."""
    path = folder / FILE_NAME
    if path.is_file():
        values = {**read_json_object(path), "quantization": name}
        write_files(folder, {FILE_NAME: json.dumps(values, indent=2).encode()})
