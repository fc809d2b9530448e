"""The architectures, by Hugging Face's ``model_type``, and what is made from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any

from mlc_compiler.ir.module import IRModule
from mlc_errors import UnsupportedError
from model_zoo import gpt2, llama, mistral, qwen2
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.decoder import EntryPoints, kv_cache_config
from quantization.rewrite import quantize_model
from quantization.schemes import Scheme

ARCHITECTURES: dict[str, Architecture] = {
    a.name: a for a in (llama.ARCHITECTURE, mistral.ARCHITECTURE, qwen2.ARCHITECTURE, gpt2.ARCHITECTURE)
}


def get(model_type: str) -> Architecture:
    """The architecture of a ``model_type``. Raises UnsupportedError with the names that exist."""
    if model_type not in ARCHITECTURES:
        near = get_close_matches(model_type, ARCHITECTURES, n=1)
        raise UnsupportedError(
            f"model_type: got {model_type!r}; expected one of {', '.join(ARCHITECTURES)}",
            hint=f"did you mean {near[0]}?" if near else None,
        )
    return ARCHITECTURES[model_type]


def build_model(config: DecoderConfig, scheme: Scheme | None = None) -> Any:
    """The module of a configuration, its layers rewritten for a quantization scheme."""
    architecture = get(config.model_type)
    model = architecture.model(config)
    if scheme is not None:
        quantize_model(model, scheme, architecture.quantization)
    return model


@dataclass(frozen=True)
class ParameterInfo:
    """A weight as the compiled functions take it."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class KVCacheInfo:
    """The cache that the caller of the functions provides."""

    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    page_size: int
    dtype: str


@dataclass(frozen=True)
class ExportedModel:
    """mod: embed, prefill, decode, batch_* and sample. params: in the order of ``packed_params``."""

    mod: IRModule
    params: tuple[ParameterInfo, ...]
    kv_cache: KVCacheInfo
    config: DecoderConfig

    def kv_metadata(self) -> Mapping[str, Any]:
        return asdict(self.kv_cache)


def export_model(
    config: DecoderConfig,
    scheme: Scheme | None = None,
    activation_dtype: str = "float32",
    kv_dtype: str | None = None,
) -> ExportedModel:
    """Trace every function of a model.

    scheme: how weights are stored, float32 when None. kv_dtype: of the KV cache; float16 for float16 schemes, else
    float32, when None.
    """
    model = build_model(config, scheme)
    if kv_dtype is None:
        kv_dtype = "float16" if scheme is not None and scheme.model_dtype == "float16" else "float32"
    cache = kv_cache_config(config, kv_dtype)
    mod, parameters = model.export(EntryPoints(model, config, cache, activation_dtype).spec())
    params = tuple(ParameterInfo(name, p.shape, p.dtype) for name, p in parameters.items())
    heads = (config.num_attention_heads, config.num_key_value_heads, config.head_dim)
    return ExportedModel(mod, params, KVCacheInfo(config.num_hidden_layers, *heads, cache.page_size, kv_dtype), config)
