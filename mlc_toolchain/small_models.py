"""Scale down a model's configuration while keeping its structure."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from mlc_compiler.backends.cuda.matmul.tiles import LARGE
from mlc_compiler.target import Target
from model_zoo.architecture import ModelConfig
from model_zoo.encoder import WholeTextConfig
from model_zoo.hybrid import HybridConfig
from model_zoo.mamba2_layers import Mamba2Config

LAYERS, KV_HEADS, PREFILL_CHUNK, BATCH = 2, 2, 512, 8
EXPERTS = 16  # in up to 8 groups, which are ranked by their two best experts
ALIGNMENT = 128  # sizes keep their remainder, so that tiles, vectors and quantization groups have the same tails


def shrink(config: ModelConfig) -> tuple[ModelConfig, dict[str, tuple[int, int]]]:
    """The configuration with few layers, heads, columns and tokens, and (before, after) of the changed sizes.

    Head size, query heads per key/value head, experts per token, and remainders of columns and vocabulary modulo 128
    are kept, and one layer of each type.
    """
    known = {f.name for f in fields(config)}  # type: ignore[arg-type]
    wanted = {name: size for name, size in _sizes(config).items() if name in known}
    changed = {n: (int(getattr(config, n)), size) for n, size in wanted.items() if getattr(config, n) != size}
    types = {"layer_types": _types(config)} if isinstance(config, HybridConfig) else {}
    return replace(config, **{n: size for n, (_, size) in changed.items()}, **types), changed  # type: ignore[type-var]


def _types(config: HybridConfig) -> tuple[str, ...]:
    """The types of the layers that are kept."""
    different = tuple(dict.fromkeys(config.types))
    return different if len(different) > 1 else config.types[:LAYERS]


def shrink_gpu(target: Target, config: ModelConfig) -> Target:
    """The CUDA target with few multiprocessors, so that small models reach all kernels.

    Kernels with large tiles are selected if there is a tile for each multiprocessor: here in a layer's matmuls with
    many tokens, but not with few.
    """
    return Target({**target.export(), "multiprocessors": _widest(config) // LARGE.columns + 1})


def _widest(config: Any) -> int:
    """The number of columns of a layer's widest matmul."""
    inner = 2 * getattr(config, "intermediate_size", config.hidden_size)
    if not hasattr(config, "num_key_value_heads"):
        return inner
    return max((config.num_attention_heads + 2 * config.num_key_value_heads) * config.head_dim, inner)


def _sizes(config: Any) -> dict[str, int]:
    context = {"context_window_size": min(config.context_window_size, PREFILL_CHUNK)}
    layers = len(_types(config)) if isinstance(config, HybridConfig) else min(config.num_hidden_layers, LAYERS)
    sizes = {
        **(context if isinstance(config, WholeTextConfig) else {}),  # a text has to fit into one call
        "num_hidden_layers": layers,
        "num_decoder_layers": min(getattr(config, "num_decoder_layers", LAYERS), LAYERS),
        "hidden_size": _small(config.hidden_size),
        **_heads(config, "num_key_value_heads", "num_attention_heads"),
        **_heads(config, "linear_num_key_heads", "linear_num_value_heads"),
        **(_square(config) if hasattr(config, "num_key_value_heads") else {}),
        "intermediate_size": _small(getattr(config, "intermediate_size", 0)),
        "vocab_size": _small(config.vocab_size),
        "prefill_chunk_size": min(config.prefill_chunk_size, PREFILL_CHUNK),
        "max_batch_size": min(config.max_batch_size, BATCH),
        **_experts(config),
    }
    return sizes | _mamba_heads(config, sizes["hidden_size"])


def _heads(config: Any, key_heads: str, heads: str) -> dict[str, int]:
    """Few key heads, with the same number of query heads per key head."""
    if not hasattr(config, key_heads):
        return {}
    before = getattr(config, key_heads)
    few = min(before, KV_HEADS)
    return {key_heads: few, heads: few * (getattr(config, heads) // before)}


def _square(config: Any) -> dict[str, int]:
    """The hidden size of a model in which it has to equal heads times head size."""
    if config.hidden_size != config.num_attention_heads * config.head_dim:
        return {}
    heads = _heads(config, "num_key_value_heads", "num_attention_heads")["num_attention_heads"]
    return {"hidden_size": heads * config.head_dim}


def _mamba_heads(config: Any, hidden_size: int) -> dict[str, int]:
    """The heads of Mamba-2, whose channels together are a multiple of the hidden size."""
    if not isinstance(config, Mamba2Config) or config.mamba_channels != config.mamba_expand * config.hidden_size:
        return {}
    return {"mamba_n_heads": config.mamba_n_heads * hidden_size // config.hidden_size}


def _experts(config: Any) -> dict[str, int]:
    """The sizes of mixtures of experts; at most the first layer is dense."""
    limits = dict.fromkeys(("n_routed_experts", "num_experts", "num_local_experts"), EXPERTS)
    inner = getattr(config, "moe_intermediate_size", None)
    limits |= {"first_k_dense_replace": 1, "moe_intermediate_size": _small(inner) if inner else 0}
    return {name: min(size, limit) for name, limit in limits.items() if (size := getattr(config, name, None))}


def _small(size: int) -> int:
    """A size of at most three times ALIGNMENT with the same remainder."""
    return min(size, 2 * ALIGNMENT + size % ALIGNMENT)
