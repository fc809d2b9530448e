"""Read llama.cpp's importance matrices: mean squares of the inputs of a model's matrices, by GGUF tensor names.

Files are GGUF, with tensors ``NAME.in_sum2`` [experts, K] and ``NAME.counts`` [experts, 1], or the older format: the
number of entries, then for each the length of its name, the name, the number of calls, the number of values, and the
values; integers int32 and values float32, little-endian (``tools/imatrix`` of llama.cpp).
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from mlc_errors import MLCError, UnsupportedError
from mlc_files import read_limited
from mlc_toolchain.calibrated_weights import Calibration
from mlc_toolchain.gguf_architectures import ARCHITECTURES
from mlc_toolchain.gguf_base import GGUFArchitecture
from mlc_toolchain.gguf_experts import MIXTURES
from mlc_toolchain.readers.gguf import MAGIC, GGUFReader
from model_zoo.weight_map import Production

LIMIT_BYTES = 1 << 30
SUMS, COUNTS = ".in_sum2", ".counts"
EXPERT = re.compile(r"\.experts\.\d+\.")


def read_imatrix(path: Path, productions: Iterable[Production], model_type: str) -> Calibration:
    """Read the importances of parameters; each takes those of its first checkpoint tensor that the file has.

    Raises MLCError for a file that is damaged or has none of the model's tensors, UnsupportedError for a model type
    without known GGUF names.
    """
    means, architectures = _means(path), _architectures(model_type)
    squares = {}
    for production in productions:
        stored = [_stored_name(a, source) for a in architectures for source in production.value.sources()]
        found = next((name for name in stored if name in means), None)
        values = None if found is None else means[found]
        if values is None:
            continue
        if len(values) != production.shape[-1]:
            raise MLCError(
                f"--imatrix: {production.name} has {production.shape[-1]} inputs; {found} has {len(values)}",
                where=[str(path)],
                hint="the file is of another model",
            )
        squares[production.name] = values
    if not squares:
        raise MLCError("--imatrix: the file has none of the model's tensors", where=[str(path)])
    source = {"kind": "imatrix", "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "parameters": len(squares)}
    return Calibration(squares, {}, source)


def _means(path: Path) -> dict[str, np.ndarray]:
    """Mean squares, float32 [K], by name; experts are summed."""
    with path.open("rb") as file:
        is_gguf = file.read(len(MAGIC)) == MAGIC
    return _of_gguf(GGUFReader(path)) if is_gguf else _of_legacy(read_limited(path, LIMIT_BYTES), path)


def _of_gguf(reader: GGUFReader) -> dict[str, np.ndarray]:
    names = [name.removesuffix(SUMS) for name in reader.names() if name.endswith(SUMS)]
    means = {}
    for name in names:
        sums = reader.read(name + SUMS)
        counts = reader.read(name + COUNTS)
        means[name] = _checked(sums.reshape(-1, sums.shape[-1]).sum(0) / max(1.0, counts.sum()), name, reader.path)
    return means


def _of_legacy(data: bytes, path: Path) -> dict[str, np.ndarray]:
    try:
        (count,), position, means = struct.unpack_from("<i", data), 4, {}
        for _ in range(count):
            (length,) = struct.unpack_from("<i", data, position)
            name = data[position + 4 : position + 4 + length].decode()
            calls, size = struct.unpack_from("<ii", data, position + 4 + length)
            position += 12 + length
            values = np.frombuffer(data, "<f4", size, position)
            position += values.nbytes
            means[name] = _checked(values / max(1, calls), name, path)
    except (struct.error, ValueError) as error:
        raise MLCError(
            f"--imatrix: the file is neither GGUF nor an older importance matrix: {error}", where=[str(path)]
        ) from None
    return means


def _checked(values: np.ndarray, name: str, path: Path) -> np.ndarray:
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise MLCError(f"--imatrix: {name} has values that are no mean squares", where=[str(path)])
    return values.astype(np.float32)


def _architectures(model_type: str) -> list[GGUFArchitecture]:
    known: list[GGUFArchitecture] = [*ARCHITECTURES.values(), *MIXTURES.values()]
    found = next((a for a in known if a.model_type == model_type), None)
    if found is None:
        raise UnsupportedError(
            f"--imatrix: the names of {model_type} models in GGUF files are not known", hint="use --calibration"
        )
    return [found, *found.instead.values()]


def _stored_name(architecture: GGUFArchitecture, name: str) -> str | None:
    """The GGUF name of a checkpoint tensor: ``blk.3.ffn_down.weight`` for ``model.layers.3.mlp.down_proj.weight``.

    The experts of a layer share one name.
    """
    name = EXPERT.sub(".experts.", name.removesuffix(".weight"))
    for part, layer in architecture.layer_prefixes.items():
        if inside := re.fullmatch(rf"{re.escape(layer)}\.(\d+)\.(.+)", name):
            stem = _stem(architecture, inside[2], part)
            return stem and f"{part}blk.{inside[1]}.{stem.removeprefix(part)}.weight"
    stem = _stem(architecture, name, "")
    return stem and f"{stem}.weight"


def _stem(architecture: GGUFArchitecture, name: str, part: str) -> str | None:
    """The GGUF name, without layer number and suffix, of the checkpoint tensor ``name`` in a part."""
    named = architecture.names.items()
    return next((stem for stem, known in named if known == name and stem.startswith(part)), None)
