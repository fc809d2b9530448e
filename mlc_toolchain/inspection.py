"""Describe the contents of a library, a model folder or a checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any

from mlc_errors import MLCError
from mlc_runtime.metadata import FunctionSpec, function_specs, parsed, read_metadata
from mlc_runtime.weight_index import read_shards
from mlc_toolchain.chat_config import FILE_NAME, read_chat_config
from mlc_toolchain.gguf_checkpoint import GGUFCheckpoint
from mlc_toolchain.memory_estimate import estimate_memory
from mlc_toolchain.model_metadata import memory_of_library
from mlc_toolchain.model_sizes import SizeOverrides, model_sizes
from mlc_toolchain.packed_settings import quantization_method, unquantized
from mlc_toolchain.readers.base import CheckpointReader
from mlc_toolchain.sentence_transformers import sentence_modules, with_heads
from mlc_toolchain.source import ModelSource, resolve_source
from quantization.schemes import get_scheme

SCHEMES = ("q0f16", "q8f16_1", "q4f16_1")
OF_A_MODEL = (
    *("model_type", "quantization", "task", "context_window_size", "sliding_window_size", "prefill_chunk_size"),
    *("max_batch_size", "vocab_size", "kv_state_kind"),
)
STAMPS = ("opt", "compiler_version", "llvm_version", "library_sha256")
WITHOUT_WEIGHTS = ("preset", "hub")
"""Kinds of sources whose weights are not on this machine."""
PARAMETERS = "packed_params"
OF_A_TARGET = ("kind", "mcpu", "arch", "mtriple")


def inspect(path: str) -> dict[str, Any]:
    """Facts about a path by name; the first is ``kind``: library, model folder, or the checkpoint's kind.

    tensors: names, dtypes and shapes. functions: inputs and results of a library's functions. Fields ``..._bytes``
    are in bytes. Nothing is run. Raises MLCError for other files.
    """
    local = Path(path).expanduser()
    if local.is_file() and local.suffix == ".so":
        return _library(local)
    if (local / FILE_NAME).is_file():
        return _model_folder(local)
    return _checkpoint(resolve_source(path))


def _library(path: Path) -> dict[str, Any]:
    metadata = read_metadata(path)
    target = metadata.get("target") or {}
    facts = {
        "kind": "library",
        "path": path,
        "file_bytes": path.stat().st_size,
        **{key: metadata[key] for key in OF_A_MODEL if key in metadata},
        "target": {key: target[key] for key in OF_A_TARGET if key in target},
        **{key: metadata[key] for key in STAMPS if key in metadata},
        "images": metadata.get("images", {}),
        "functions": parsed(lambda: [_function(f, metadata) for f in function_specs(metadata).values()]),
    }
    if "params" not in metadata:
        return facts
    memory = memory_of_library(path)
    tensors = parsed(lambda: [{k: p[k] for k in ("name", "dtype", "shape")} for p in metadata["params"]])
    return {**facts, **vars(memory), "parameters": len(tensors), "tensors": tensors}


def _function(spec: FunctionSpec, metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": spec.name,
        "workspace_bytes": metadata.get("memory_usage", {}).get(spec.name, 0),
        "inputs": ", ".join(f"{i.name}: {i}" for i in spec.inputs if i.name != PARAMETERS),
        "results": ", ".join(map(str, spec.outputs)),
    }


def _model_folder(folder: Path) -> dict[str, Any]:
    config = read_chat_config(folder)
    index, shards = read_shards(folder)
    records = [record for shard in shards for record in shard.records]
    return {
        "kind": "model folder",
        "path": folder,
        "model_type": config.model_type,
        "model_task": config.model_task,
        "quantization": config.quantization,
        "vocab_size": config.vocab_size,
        "context_window_size": config.context_window_size,
        "conv_template": config.conv_template.name or "the checkpoint's",
        "tokenizer_files": list(config.tokenizer_files),
        "index": index.name,
        "files": len(shards),
        "weight_bytes": sum(record.nbytes for record in records),
        "dtypes": _count(record.stored for record in records),
        "libraries": [_brief(path) for path in sorted(folder.glob("*.so"))],
        "tensors": [{"name": r.name, "dtype": r.stored, "shape": list(r.shape), "file": r.shard} for r in records],
    }


def _brief(path: Path) -> dict[str, Any]:
    """A short description of a library, or the error if it cannot be read."""
    try:
        found = _library(path)
    except MLCError as error:
        return {"name": path.name, "bytes": path.stat().st_size, "target": error.message, "opt": "", "version": ""}
    target = " ".join(str(found["target"].get(key, "")) for key in ("kind", "mcpu"))
    stamps = {"opt": found.get("opt", ""), "version": found.get("compiler_version", "")}
    return {"name": path.name, "bytes": found["file_bytes"], "target": target, **stamps}


def _checkpoint(source: ModelSource) -> dict[str, Any]:
    config = with_heads(source.config(), sentence_modules(source))
    facts: dict[str, Any] = {
        "kind": source.kind,
        "path": source.path,
        "model_type": config.get("model_type"),
        "architectures": config.get("architectures") or [],
        "quantized_as": quantization_method(config, str(source.path)) or "",
        **_support(source, config),
    }
    if source.kind in WITHOUT_WEIGHTS:
        return facts
    reader = source.weights()
    tensors = _tensors(reader)
    if isinstance(reader, GGUFCheckpoint):
        facts["quantized_as"] = ", ".join(f"{name} {count}" for name, count in reader.block_types().items())
    return {
        **facts,
        "files": len(reader.files()),
        "file_bytes": sum(path.stat().st_size for path in reader.files()),
        "parameters": sum(prod(tensor["shape"]) for tensor in tensors),
        "dtypes": _count(tensor["dtype"] for tensor in tensors),
        "tensors": tensors,
    }


def _support(source: ModelSource, config: Mapping[str, Any]) -> dict[str, Any]:
    """Whether the architecture is supported and, if so, its memory use."""
    try:
        plain = unquantized(config, str(source.path))
        sizes = {name: model_sizes(plain, "auto", get_scheme(name), SizeOverrides()) for name in SCHEMES}
    except MLCError as error:
        return {"supported": False, "reason": error.message}
    any_size = sizes[SCHEMES[0]]
    memory = estimate_memory(any_size)
    return {
        "supported": True,
        "context_window_size": any_size.get("context_window_size", -1),
        "vocab_size": any_size.vocab_size,
        "kv_bytes_per_token": memory.kv_bytes_per_token,
        "kv_full_context_bytes": memory.kv_full_context_bytes,
        "weight_bytes": {name: size.weight_bytes for name, size in sizes.items()},
    }


def _tensors(reader: CheckpointReader) -> list[dict[str, Any]]:
    found = ((name, reader.info(name)) for name in reader.names())
    return [{"name": name, "dtype": info.dtype, "shape": list(info.shape)} for name, info in found]


def _count(dtypes: Iterable[str]) -> dict[str, int]:
    return dict(Counter(dtypes).most_common())
