"""``--bits``: measure sensitivities, choose a mixture of schemes of a given size, and record it for ``compile``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from mlc_errors import UsageError
from mlc_toolchain.chat_config import FILE_NAME
from mlc_toolchain.output_layout import MLC_INDEX
from mlc_toolchain.readers.bounded_json import read_json_object
from mlc_toolchain.text_files import write_files
from quantization.schemes import Scheme, get_scheme

QUANTIZATION = "Quantization"
"""The key of the mixture's name in the metadata of weights."""


@dataclass(frozen=True)
class MixtureRow:
    """Weights that share a scheme. divergence: in nats, if only these weights are quantized in the base scheme."""

    first: str
    last: str
    scheme: str
    bits: float
    divergence: float


@dataclass(frozen=True)
class Mixture:
    """A chosen mixture: its scheme, and the measurements on which the choice is based."""

    scheme: Scheme
    rows: tuple[MixtureRow, ...]


def check_base(scheme: Scheme) -> None:
    """Raises UsageError for a scheme that cannot be the base of a mixture."""
    if scheme.kind != "group" or not scheme.can_calibrate or scheme.parts:
        raise UsageError(
            f"--bits: {scheme.name} cannot be the base of a mixture", hint="use --quantization q3f16_nl8 or q4f16_nl"
        )


def recorded_mixture(folder: Path, base: str) -> str:
    """The name of the mixture recorded with the weights in a folder, if its base is ``base``; else ``base``."""
    if not (folder / MLC_INDEX).is_file():
        return base
    metadata = read_json_object(folder / MLC_INDEX).get("metadata")
    name = metadata.get(QUANTIZATION) if isinstance(metadata, dict) else None
    return name if isinstance(name, str) and name.split(",")[0] == get_scheme(base).name else base


def record_mixture(folder: Path, name: str) -> None:
    """Write the mixture's name into the folder's mlc-chat-config.json, if there is one, for ``compile``."""
    path = folder / FILE_NAME
    if path.is_file():
        values = {**read_json_object(path), "quantization": name}
        write_files(folder, {FILE_NAME: json.dumps(values, indent=2).encode()})
