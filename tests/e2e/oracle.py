"""Expected results of a model folder, from transformers models with the folder's weights in float32."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers
from transformers import LlamaConfig, PretrainedConfig, PreTrainedModel
from transformers.initialization import no_init_weights

from mlc_runtime.weights import TensorCache
from tests.compiler.code_words import stored_codes
from tests.e2e.checkpoints import CLASSES
from tests.toolchain.hf_from_gguf import hf_config, hf_tensors

EXPERTS = {"gate": "gate.weight", "e1_e3": "experts.gate_up_proj", "e2": "experts.down_proj"}
GROUP = 32


def logits(model: PreTrainedModel, ids: Iterable[int], *, half_cache: bool = False) -> np.ndarray:
    """Logits after each of ``ids``, float32 [len(ids), V]. half_cache: round keys and values to float16."""
    cache = HalfCache() if half_cache else None
    with torch.no_grad():
        return model(torch.tensor([list(map(int, ids))]), past_key_values=cache).logits[0].numpy()


def holding(config: PretrainedConfig, tensors: Mapping[str, np.ndarray]) -> PreTrainedModel:
    """The float32 model with ``tensors`` by their Hugging Face names; only a tied head may be missing.

    The padding of the last quantization group of a matrix is cut off.
    """
    with no_init_weights():
        model = CLASSES[config.model_type](config).eval()
    shapes = {name: parameter.shape for name, parameter in model.state_dict().items()}
    state = {name: torch.from_numpy(value[tuple(map(slice, shapes[name]))]) for name, value in tensors.items()}
    missing, _ = model.load_state_dict(state, strict=False)
    assert set(missing) <= ({"lm_head.weight"} if config.tie_word_embeddings else set())
    model.tie_weights()
    return model


def from_gguf(path: Path) -> PreTrainedModel:
    """SmolLM2 with the GGUF's blocks dequantized by the gguf package."""
    reader = gguf.GGUFReader(path)
    return holding(LlamaConfig(**hf_config(reader)), hf_tensors(reader, "float32"))


def from_folder(
    config: PretrainedConfig, folder: Path, books: Mapping[int, tuple[int, ...]] = {}, group: int = GROUP
) -> PreTrainedModel:
    """The model with the dequantized weights of a converted folder. books: values of codes by their bits. group: inputs
    with one scale."""
    stored = TensorCache(folder)
    tensors: dict[str, np.ndarray] = {}
    ranges: dict[str, list[np.ndarray]] = {}  # of rows, in order
    for name in stored.records:
        if name.endswith(".q_weight"):
            path = name.removesuffix("q_weight")
            weight = decoded(stored.read(name), stored.read(f"{path}q_scale"), books, group)
            whole = re.sub(r"parts\.\d+\.$", "", path)
            ranges.setdefault(whole, []).append(weight)
            tensors |= hf_parts(f"{whole}weight", np.concatenate(ranges[whole]), config)
        elif not name.endswith(".q_scale"):
            tensors |= hf_parts(name, stored.read(name).astype(np.float32), config)
    return holding(config, tensors)


def decoded(words: np.ndarray, scales: np.ndarray, books: Mapping[int, tuple[int, ...]], group: int) -> np.ndarray:
    """float32 [..., K up to a whole group] of codes uint32 [..., words].

    Of codes without a book, the middle one stands for 0. Scales of one byte are a sign and a float16's bits, divided
    by 96.
    """
    bits = 32 * words.shape[-1] // scales.shape[-1] // group
    if scales.dtype == np.int8:
        magnitudes = ((scales & 127).astype(np.uint16) * 96).view(np.float16)
        scales = np.where(scales < 0, -magnitudes, magnitudes)
    table = np.array(books.get(bits, np.arange(1 << bits) - (1 << bits - 1) + 1), np.float32)
    codes = stored_codes(words.reshape(-1, words.shape[-1]), bits, group).reshape(*words.shape[:-1], -1)
    return table[codes] * np.repeat(scales.astype(np.float32), group, axis=-1)


def hf_parts(name: str, value: np.ndarray, config: PretrainedConfig) -> dict[str, np.ndarray]:
    """Split a parameter of the MLC format into tensors with Hugging Face names: GPT-2's matrices are transposed, fused
    projections separated."""
    *path, layer, kind = name.split(".")
    if layer in EXPERTS:
        return {".".join([*path[:-1], "mlp", EXPERTS[layer]]): value}
    if layer in ("c_attn", "c_proj", "c_fc"):
        return {name: value.T}
    if layer == "gate_up_proj":
        parts, ends = ("gate", "up"), [config.intermediate_size]
    elif layer == "qkv_proj":
        keys = config.num_key_value_heads * config.head_dim
        parts, ends = "qkv", [len(value) - 2 * keys, len(value) - keys]
    else:
        return {name: value}
    return {".".join([*path, f"{part}_proj", kind]): v for part, v in zip(parts, np.split(value, ends), strict=True)}


class HalfCache(transformers.DynamicCache):
    """Rounds keys and values to float16, as the KV cache of a float16 scheme does."""

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        halves = (states.half().float() for states in (key_states, value_states))
        return super().update(*halves, layer_idx, *args, **kwargs)
