"""Layout of an output folder: files, tensors, sizes and indexes, computed before any data is written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from mlc_toolchain.readers.base import DTYPES
from mlc_toolchain.readers.safetensors import DTYPE_NAMES

MLC_SHARD_BYTES = 32 << 20
SAFETENSORS_SHARD_BYTES = 1 << 30
MLC_INDEX = "tensor-cache.json"
MLC_BF16_INDEX = "tensor-cache-b16.json"
SAFETENSORS_INDEX = "model.safetensors.index.json"
MLC_STALE = re.compile(r"params_shard_\d+\.bin|(tensor|ndarray)-cache(-b16)?\.json")
SAFETENSORS_STALE = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors|model\.safetensors\.index\.json")
SAFETENSORS_NAMES = {name: code for code, name in DTYPE_NAMES.items()}


@dataclass(frozen=True)
class OutputTensor:
    """A tensor of the output. stored: its dtype on disk, different from dtype for float32 stored as bfloat16."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    stored: str

    @property
    def nbytes(self) -> int:
        """Bytes on disk."""
        return prod(self.shape) * DTYPES[self.stored].itemsize

    @property
    def memory_bytes(self) -> int:
        return prod(self.shape) * DTYPES[self.dtype].itemsize


@dataclass(frozen=True)
class OutputFile:
    """A file with ``header`` followed by the tensors without gaps."""

    name: str
    header: bytes
    tensors: tuple[OutputTensor, ...]

    @property
    def nbytes(self) -> int:
        return len(self.header) + sum(tensor.nbytes for tensor in self.tensors)


@dataclass(frozen=True)
class OutputFormat:
    """The files of one conversion.

    index_names: index files, written last, in this order; indexes(md5 sums of the files) returns their contents.
    stale: names of files that an earlier run may have left. source_elements: number of parameters, for
    bits_per_parameter.
    """

    files: tuple[OutputFile, ...]
    index_names: tuple[str, ...]
    indexes: Callable[[Mapping[str, str]], dict[str, bytes]]
    stale: re.Pattern[str]
    source_elements: int

    @property
    def tensors(self) -> list[OutputTensor]:
        return [tensor for file in self.files for tensor in file.tensors]

    @property
    def nbytes(self) -> int:
        """Bytes on disk without indexes."""
        return sum(file.nbytes for file in self.files)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the tensors in their own dtypes."""
        return sum(tensor.memory_bytes for tensor in self.tensors)

    @property
    def bits_per_parameter(self) -> float:
        return 8.0 * self.memory_bytes / self.source_elements if self.source_elements else 0.0


def mlc_format(
    tensors: Sequence[OutputTensor], source_elements: int, notes: Mapping[str, object] | None = None
) -> OutputFormat:
    """The MLC format: ``params_shard_N.bin`` and ``tensor-cache.json``. notes: additional metadata."""
    shards = _mlc_shards(tensors)
    files = tuple(OutputFile(f"params_shard_{i}.bin", b"", tuple(shard)) for i, shard in enumerate(shards))
    narrowed = any(tensor.dtype != tensor.stored for tensor in tensors)
    index_names = (MLC_BF16_INDEX, MLC_INDEX) if narrowed else (MLC_INDEX,)

    def indexes(md5_sums: Mapping[str, str]) -> dict[str, bytes]:
        return {name: _mlc_index(made, md5_sums, name == MLC_BF16_INDEX, notes or {}) for name in index_names}

    made = OutputFormat(files, index_names, indexes, MLC_STALE, source_elements)
    return made


def safetensors_format(
    tensors: Sequence[OutputTensor], source_elements: int, metadata: Mapping[str, str]
) -> OutputFormat:
    """The safetensors format: ``model.safetensors``, or shards with an index. metadata: strings in every header."""
    shards = _filled_shards(tensors, SAFETENSORS_SHARD_BYTES)
    headers = [_safetensors_header(shard, metadata) for shard in shards]
    files = tuple(
        OutputFile(name, header, tuple(shard))
        for name, header, shard in zip(_safetensors_names(len(shards)), headers, shards)
    )
    weight_map = {tensor.name: file.name for file in files for tensor in file.tensors}
    index = {"metadata": {"total_size": sum(tensor.nbytes for tensor in tensors)}, "weight_map": weight_map}
    text = json.dumps(index, indent=2).encode()
    index_names = (SAFETENSORS_INDEX,) if len(files) > 1 else ()
    indexes = dict.fromkeys(index_names, text)
    return OutputFormat(files, index_names, lambda _: indexes, SAFETENSORS_STALE, source_elements)


def _mlc_index(made: OutputFormat, md5_sums: Mapping[str, str], as_stored: bool, notes: Mapping[str, object]) -> bytes:
    metadata = {
        "ParamSize": len(made.tensors),
        "ParamBytes": float(made.memory_bytes),
        "BitsPerParam": made.bits_per_parameter,
        **notes,
    }
    shards = [_mlc_shard(file, md5_sums[file.name], as_stored) for file in made.files]
    return json.dumps({"metadata": metadata, "records": shards}, indent=4).encode()


def _mlc_shards(tensors: Sequence[OutputTensor]) -> list[list[OutputTensor]]:
    """Group tensors into shards as mlc_llm does: a tensor too large for a shard gets its own one immediately,
    while the shard being filled stays open and is numbered when it is full."""
    shards: list[list[OutputTensor]] = []
    pending: list[OutputTensor] = []
    filled = 0
    for tensor in tensors:
        if filled + tensor.nbytes >= MLC_SHARD_BYTES:
            if 2 * tensor.nbytes >= MLC_SHARD_BYTES:
                shards.append([tensor])
                continue
            if pending:
                shards.append(pending)
            pending, filled = [], 0
        pending.append(tensor)
        filled += tensor.nbytes
    return [*shards, pending] if filled else shards


def _filled_shards(tensors: Sequence[OutputTensor], limit: int) -> list[list[OutputTensor]]:
    shards: list[list[OutputTensor]] = [[]]
    filled = 0
    for tensor in tensors:
        if filled and filled + tensor.nbytes > limit:
            shards.append([])
            filled = 0
        shards[-1].append(tensor)
        filled += tensor.nbytes
    return shards


def _mlc_shard(file: OutputFile, md5_sum: str, as_stored: bool) -> dict[str, object]:
    records, offset = [], 0
    for tensor in file.tensors:
        records.append(_mlc_record(tensor, offset, as_stored))
        offset += tensor.nbytes
    place = {"dataPath": file.name, "format": "raw-shard", "nbytes": file.nbytes}
    return {**place, "records": records, "md5sum": md5_sum}


def _mlc_record(tensor: OutputTensor, offset: int, as_stored: bool) -> dict[str, object]:
    """The record of a tensor. mlc_llm writes "f32-to-bf16" for every dtype; "raw" marks float32 stored exactly."""
    narrowed = tensor.stored != tensor.dtype
    raw = (narrowed and as_stored) or (tensor.dtype == "float32" and not narrowed)
    return {
        "name": tensor.name,
        "shape": list(tensor.shape),
        "dtype": tensor.stored if as_stored else tensor.dtype,
        "format": "raw" if raw else "f32-to-bf16",
        "nbytes": tensor.nbytes,
        "byteOffset": offset,
    }


def _safetensors_names(count: int) -> list[str]:
    if count == 1:
        return ["model.safetensors"]
    return [f"model-{index:05d}-of-{count:05d}.safetensors" for index in range(1, count + 1)]


def _safetensors_header(tensors: Sequence[OutputTensor], metadata: Mapping[str, str]) -> bytes:
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    offset = 0
    for tensor in tensors:
        span = [offset, offset + tensor.nbytes]
        header[tensor.name] = {"dtype": SAFETENSORS_NAMES[tensor.stored], "shape": tensor.shape, "data_offsets": span}
        offset += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
