"""The model's metadata in a library: the compiler's only interface to the runtime."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from mlc_compiler.ir import dtype as dt
from mlc_compiler.ir.module import IRModule
from mlc_compiler.nn.states import State
from mlc_compiler.relax.nodes import Function
from mlc_toolchain.accounting import accounting
from model_zoo.registry import ExportedModel, ParameterInfo


def model_metadata(
    exported: ExportedModel, quantization: str, mod: IRModule, active_vocab_size: int | None = None
) -> dict[str, Any]:
    """The model's part of the metadata. mod: the lowered module. active_vocab_size: number of ids of the tokenizer;
    None for the model's.

    params: in the order of ``packed_params``; ``packed``: the layout of a packed one and the function that packs it.
    states: arrays that the caller allocates, in the order of the functions' inputs; see ``State.describe``.
    memory_usage: bytes of workspace by function. accounting: bytes and operations of kernels, see ``accounting``.
    images: the model's image input, see ``ImageInput``, or None. Sizes that do not apply are -1.
    """
    config = exported.config
    packed = mod.attrs.get("packed", {})
    states = [state.describe() for state in exported.states]
    images = exported.architecture.images(config)
    return {
        "model_type": config.model_type,
        "quantization": quantization,
        "task": exported.architecture.task,
        "vocab_size": config.vocab_size,
        "active_vocab_size": config.vocab_size if active_vocab_size is None else active_vocab_size,
        "context_window_size": config.context_window_size,
        "sliding_window_size": _of_all(states, "sliding_window_size"),
        "attention_sink_size": _of_all(states, "attention_sink_size"),
        "prefill_chunk_size": config.prefill_chunk_size,
        "max_batch_size": config.max_batch_size,
        "tensor_parallel_shards": 1,
        "pipeline_parallel_stages": 1,
        "disaggregation": False,
        "kv_state_kind": kv_state_kind(exported.states),
        "states": states,
        "image_input": None if images is None else images.describe(),
        "kv_bytes_per_token": sum(state.bytes_per_token for state in exported.states),
        "decoder_start_token_id": getattr(config, "decoder_start_token_id", None),
        "params": [_parameter(p, packed.get(str(i)), mod) for i, p in enumerate(exported.params)],
        "memory_usage": memory_usage(mod),
        "accounting": accounting(mod, {s.prefix + name for s in exported.states for name in s.fields()}),
    }


def kv_state_kind(states: Sequence[State]) -> str:
    """``kv_cache``, ``rnn_state``, ``hybrid`` for both, or ``none``."""
    recurrent = [state.describe()["kind"] == "recurrent" for state in states]
    if not recurrent:
        return "none"
    return "hybrid" if len(set(recurrent)) == 2 else "rnn_state" if recurrent[0] else "kv_cache"


def memory_usage(mod: IRModule) -> dict[str, int]:
    """Bytes of workspace by exported function, at the upper bounds of the symbolic sizes."""
    attrs = {name: f.attrs for name, f in mod.of_type(Function).items()}
    return {name: int(a["workspace_bytes"]) for name, a in attrs.items() if "workspace_bytes" in a}


def params_bytes(exported: ExportedModel) -> int:
    """Bytes of all weights."""
    return sum(prod(p.shape) * dt.nbytes(p.dtype) for p in exported.params)


def _of_all(states: Sequence[dict[str, Any]], key: str) -> int:
    """The value of ``key`` that all states share; -1 if they lack it or differ."""
    values = {state.get(key, -1) for state in states}
    return values.pop() if len(values) == 1 else -1


def _parameter(info: ParameterInfo, pack: str | None, mod: IRModule) -> dict[str, Any]:
    packed = None
    if pack is not None:
        result = mod[pack].params[-1].struct_info
        packed = {"shape": [int(s) for s in result.shape], "dtype": result.dtype, "function": pack}
    return {"name": info.name, "shape": list(info.shape), "dtype": info.dtype, "packed": packed}
