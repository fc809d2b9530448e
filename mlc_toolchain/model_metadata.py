"""Describe the model in a library, with the names that mlc_llm uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from mlc_errors import MLCError
from mlc_runtime.dtypes import dtype_of
from mlc_runtime.metadata import parsed, read_metadata

SAME = (
    *("model_type", "quantization", "context_window_size", "sliding_window_size", "attention_sink_size"),
    *("prefill_chunk_size", "tensor_parallel_shards", "pipeline_parallel_stages", "disaggregation", "kv_state_kind"),
    *("max_batch_size", "active_vocab_size"),
)
"""Keys with the same names in a library's metadata."""


@dataclass(frozen=True)
class MemoryReport:
    """Bytes of all weights, of the largest workspace of any function, and of the KV cache per token and context."""

    params_bytes: int
    workspace_bytes: int
    kv_bytes_per_token: int
    kv_full_context_bytes: int


def describe_library(path: Path) -> dict[str, Any]:
    """The model in a library: sizes, task, states, parameters in their order, workspace in bytes by function.

    Raises MLCError for a file that is not a library with a model. The library is not run.
    """
    metadata = _metadata(path)
    return parsed(lambda: _described(metadata))


def memory_of_library(path: Path) -> MemoryReport:
    """The memory that the model in a library needs. Raises MLCError as ``describe_library`` does."""
    metadata = _metadata(path)
    return parsed(lambda: _memory(metadata))


def _metadata(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise MLCError(f"{path} does not exist", hint="compile writes libraries")
    metadata = read_metadata(path)
    if "params" not in metadata:
        raise MLCError("the library holds no model: its metadata has no params", where=[str(path)])
    return metadata


def _described(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{key: metadata[key] for key in SAME},
        "model_task": metadata["task"],
        "params": [_parameter(p) for p in metadata["params"]],
        "kv_cache": _kv_cache(metadata["states"]),
        "memory_usage": metadata["memory_usage"],
    }


def _parameter(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of a parameter for one device: without preprocessing, in the only pipeline stage."""
    return {**{k: entry[k] for k in ("name", "shape", "dtype")}, "preprocs": [], "pipeline_stages": [0]}


def _kv_cache(states: list[Mapping[str, Any]]) -> dict[str, int] | None:
    """Sizes of the KV cache, counting the layers of all groups; None without a KV cache."""
    caches = [s for s in states if s["kind"] != "recurrent"]
    if not caches:
        return None
    heads = {key: caches[0][key] for key in ("num_attention_heads", "num_key_value_heads", "head_dim")}
    return {"num_hidden_layers": sum(s["num_hidden_layers"] for s in caches), **heads}


def _memory(metadata: Mapping[str, Any]) -> MemoryReport:
    return MemoryReport(
        sum(prod(p["shape"]) * dtype_of(p["dtype"]).itemsize for p in metadata["params"]),
        max(metadata["memory_usage"].values(), default=0),
        metadata["kv_bytes_per_token"],
        metadata["kv_bytes_per_token"] * max(metadata["context_window_size"], 0),
    )
