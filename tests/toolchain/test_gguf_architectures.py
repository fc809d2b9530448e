"""GGUF files of every known architecture, written under the gguf package's names, give back config and tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from mlc_errors import UnsupportedError
from mlc_toolchain.gguf_architectures import ARCHITECTURES
from mlc_toolchain.gguf_checkpoint import GGUFCheckpoint
from model_zoo import registry
from tests.model_zoo.architecture_cases import CASES, Case

KEYS = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "norm_epsilon": "attention.layer_norm_epsilon",
    "norm_eps": "attention.layer_norm_epsilon",
    "sliding_window": "attention.sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "embedding_multiplier": "embedding_scale",
    "attention_multiplier": "attention.scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale",
}


@dataclass(frozen=True)
class Form:
    """How llama.cpp's converter writes one architecture. case: of the table of architectures. options: for its config.

    permuted: rows of queries and keys pair neighbouring elements. shifted: norms are stored as ``w + 1``.
    """

    case: str
    options: Mapping[str, Any] = field(default_factory=dict)
    permuted: bool = False
    shifted: bool = False


FORMS = {
    "qwen3": Form("qwen3"),
    "gemma": Form("gemma", shifted=True),
    "gemma2": Form("gemma2", {"query_pre_attn_scalar": 12}, shifted=True),
    "gemma3": Form(
        "gemma3_text",
        {"query_pre_attn_scalar": 12, "sliding_window_pattern": 6, "rope_parameters": None},
        shifted=True,
    ),
    "phi3": Form("phi3", {"sliding_window": 7, "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.6}}),
    "olmo2": Form("olmo2", {"attention_bias": False}),
    "granite": Form("granite", {"attention_bias": False, "mlp_bias": False}, permuted=True),
    "smollm3": Form("smollm3", {"no_rope_layer_interval": 4}, permuted=True),
    "seed_oss": Form("seed_oss", {"attention_out_bias": False, "mlp_bias": False}),
    "starcoder2": Form("starcoder2"),
    "nemotron": Form("nemotron", shifted=True),
}


def test_every_architecture_is_tested() -> None:
    assert set(ARCHITECTURES) == set(FORMS) | {"llama", "gpt2", "qwen2", "internlm2"}  # two of Llama's names and order


@pytest.mark.parametrize("name", FORMS)
def test_config_and_tensors_come_back(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    case = next(c for c in CASES if c.name == form.case)
    model = Case(case.name, case.config, {**case.options, **form.options}).model()
    tensors = {n: t.numpy() for n, t in model.state_dict().items()}
    raw = model.config.to_dict()
    if raw["tie_word_embeddings"]:
        tensors.pop("lm_head.weight")
    checkpoint = GGUFCheckpoint(write(tmp_path / "a.gguf", name, form, raw, tensors))
    config = registry.get(checkpoint.config()["model_type"]).config
    assert config.from_hf(checkpoint.config()) == config.from_hf(raw)
    assert set(checkpoint.names()) == set(tensors)
    for tensor in tensors:
        np.testing.assert_allclose(checkpoint.read(tensor), tensors[tensor], rtol=0, atol=1e-6, err_msg=tensor)
        rows = np.concatenate(list(checkpoint.read_rows(tensor)))
        assert np.array_equal(rows, checkpoint.read(tensor)), tensor


def test_a_window_makes_olmo2_another_model(tmp_path: Path) -> None:
    raw = {**next(c for c in CASES if c.name == "olmo2").model().config.to_dict(), "sliding_window": 8}
    tensors = {"model.embed_tokens.weight": np.zeros((4, 4), np.float32)}
    checkpoint = GGUFCheckpoint(write(tmp_path / "a.gguf", "olmo2", FORMS["olmo2"], raw, tensors))
    with pytest.raises(UnsupportedError, match="sliding_window: got 8; olmo2 models are supported with 0 only"):
        registry.get("olmo2").config.from_hf(checkpoint.config())


def write(path: Path, name: str, form: Form, config: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Path:
    """The file under the names of the gguf package, with metadata, order of rows and norms as its form says."""
    arch = next(a for a, text in gguf.MODEL_ARCH_NAMES.items() if text == name)
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    writer = gguf.GGUFWriter(path, name)
    for key, value in metadata(config).items():
        (writer.add_uint32 if type(value) is int else writer.add_float32)(f"{name}.{key}", value)
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for hf_name, tensor in tensors.items():
        part = hf_name.split(".")[-2]
        stored = permuted(tensor, heads[part]) if form.permuted and part in heads else tensor
        stored = stored + 1 if form.shifted and hf_name.endswith("norm.weight") else stored
        writer.add_tensor(names.get_name(hf_name, (".weight", ".bias")), np.ascontiguousarray(stored))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def metadata(config: Mapping[str, Any]) -> dict[str, Any]:
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    rope = config["rope_parameters"]
    rope = rope.get("full_attention") or rope
    return {
        **{key: config[name] for name, key in KEYS.items() if config.get(name) is not None},
        "attention.key_length": head_dim,
        "rope.freq_base": float(rope["rope_theta"]),
        "rope.dimension_count": int(head_dim * rope.get("partial_rotary_factor", 1.0)),
    }


def permuted(rows: np.ndarray, heads: int) -> np.ndarray:
    """From first halves and second halves of each head to neighbouring pairs."""
    return rows.reshape(heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


torch.manual_seed(0)
