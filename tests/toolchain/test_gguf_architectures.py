"""GGUF files of every known architecture, written under the gguf package's names, give back config and tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from mlc_errors import UnsupportedError
from mlc_toolchain.gguf_architectures import ARCHITECTURES
from mlc_toolchain.gguf_checkpoint import GGUFCheckpoint
from mlc_toolchain.gguf_encoders import ENCODERS
from mlc_toolchain.gguf_mamba import STATE_SPACE
from mlc_toolchain.gguf_recurrent import RECURRENT
from mlc_toolchain.gguf_routed import LATENT_DENSE
from model_zoo import registry
from tests.model_zoo.architecture_cases import CASES, Case
from tests.toolchain import test_gguf_parts

KEYS = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model"), "embedding_length"),
    **dict.fromkeys(("intermediate_size", "n_inner", "ffn_hidden_size"), "feed_forward_length"),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers"), "block_count"),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads"), "attention.head_count"),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads"), "attention.head_count_kv"),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), "context_length"),
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    **dict.fromkeys(
        ("norm_epsilon", "norm_eps", "layer_norm_eps", "layer_norm_epsilon"), "attention.layer_norm_epsilon"
    ),
    **dict.fromkeys(("num_experts", "num_local_experts"), "expert_count"),
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "clip_qkv": "attention.clamp_kqv",
    "logit_scale": "logit_scale",
    "use_parallel_residual": "use_parallel_residual",
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
    """How llama.cpp's converter writes one architecture.

    case, options: in the table of architectures, and further options of its config. permuted: rows of queries and
    keys are in interleaved pairs (RoPE). shifted: norms are stored as ``w + 1``. split: rows of fused queries, keys
    and values are all queries, all keys, all values instead of groups. metadata: in addition to ``KEYS``. head: the
    output head's name in checkpoints. experts: gates, inputs and outputs of a layer's experts are one tensor each.
    """

    case: str
    options: Mapping[str, Any] = field(default_factory=dict)
    permuted: bool = False
    shifted: bool = False
    split: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    head: str = "lm_head"
    experts: bool = False


YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "truncate": False,
}
YARN_KEYS = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 16}
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
    "gptneox": Form("gpt_neox", split=True, head="embed_out"),
    "bloom": Form("bloom", split=True, metadata={"context_length": 2048, "feed_forward_length": 240}),
    "falcon": Form("falcon", split=True, metadata={"attention.head_count_kv": 1, "feed_forward_length": 240}),
    "mpt": Form("mpt", metadata={"feed_forward_length": 240, "attention.clamp_kqv": 0.7}),
    "starcoder": Form("gpt_bigcode", metadata={"attention.head_count_kv": 1}),
    "phi2": Form("phi"),
    "stablelm": Form("stablelm"),
    "orion": Form("orion", metadata={"attention.layer_norm_epsilon": 1e-5}),
    "command-r": Form("cohere", {"use_qk_norm": False}),
    "cohere2": Form("cohere2", {"layer_types": ["sliding_attention"] * 2}),
    "exaone": Form("exaone", {"attention_bias": False, "mlp_bias": False}),
    "exaone4": Form("exaone4", {"sliding_window_pattern": 4}),
    "hunyuan-dense": Form("hunyuan_v1_dense", {"rope_parameters": None}),
    "ernie4_5": Form("ernie4_5", {"use_bias": False}),
    "glm4": Form("glm4"),
    "olmo": Form("olmo", permuted=True),
    "arcee": Form("arcee", {"rope_parameters": None}, permuted=True),
    "gpt-oss": Form(
        "gpt_oss",
        {"rope_parameters": YARN, "swiglu_limit": 7.0},
        experts=True,
        metadata={**YARN_KEYS, "expert_feed_forward_length": 52},
    ),
    "minicpm": Form("granite", {"attention_bias": False, "mlp_bias": False}, permuted=True),
}
LLAMAS = {"llama", "gpt2", "qwen2", "internlm2", "baichuan"}  # the last two have Llama's names and order
LIKE_DECODERS = {"gemma-embedding"}  # tested with encoders


def test_every_architecture_is_tested() -> None:
    elsewhere = {
        *LLAMAS,
        *STATE_SPACE,
        *RECURRENT,
        *ENCODERS,
        *LIKE_DECODERS,
        *LATENT_DENSE,
        *(form.arch for form in test_gguf_parts.FORMS),
    }
    assert set(ARCHITECTURES) == {name for name, form in FORMS.items() if not form.experts} | elsewhere


@pytest.mark.parametrize("name", FORMS)
def test_config_and_tensors_come_back(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    case, model = model_of(form)
    raw, state = model.config.to_dict(), model.state_dict()
    raw, state = case.to_checkpoint(raw, state) if case.to_checkpoint else (raw, state)
    tensors = {n.replace("lm_head", form.head): t.numpy() for n, t in state.items()}
    if raw["tie_word_embeddings"]:
        tensors.pop("lm_head.weight")
    tensors = of_experts(tensors) if form.experts else tensors
    checkpoint = GGUFCheckpoint(write(tmp_path / "a.gguf", name, form, raw, tensors))
    config = registry.get(checkpoint.config()["model_type"]).config
    assert config.from_hf(checkpoint.config()) == config.from_hf(raw)
    assert set(checkpoint.names()) == set(tensors)
    for tensor in tensors:
        np.testing.assert_allclose(checkpoint.read(tensor), tensors[tensor], rtol=0, atol=1e-6, err_msg=tensor)
        rows = np.concatenate(list(checkpoint.read_rows(tensor)))
        assert np.array_equal(rows, checkpoint.read(tensor)), tensor


@pytest.mark.parametrize("name", [name for name, form in FORMS.items() if form.experts])
def test_experts_become_the_same_parameters(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    _, model = model_of(form)
    raw, stored = model.config.to_dict(), {n: t.numpy() for n, t in model.state_dict().items()}
    checkpoint = GGUFCheckpoint(write(tmp_path / "a.gguf", name, form, raw, of_experts(stored)))
    architecture = registry.get(form.case)
    config = architecture.config.from_hf(raw)
    parameters = {n: p.shape for n, p in architecture.model(config).named_parameters()}
    weights = architecture.weights(config)
    expected = weights.resolve(parameters, {n: t.shape for n, t in stored.items()})
    values = {p.name: p.value.evaluate(stored.__getitem__) for p in expected.productions}
    plan = weights.resolve(parameters, {n: checkpoint.info(n).shape for n in checkpoint.names()})
    for production in plan.productions:
        blocks = production.value.row_blocks(checkpoint.read, checkpoint.read_rows)
        np.testing.assert_allclose(np.concatenate(list(blocks)), values.pop(production.name), atol=1e-6)
    assert not values


def model_of(form: Form) -> tuple[Case, PreTrainedModel]:
    case = next(c for c in CASES if c.name == form.case)
    return case, replace(case, options={**case.options, **form.options}).model()


def of_experts(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Rename and transpose expert tensors to [E, out, in], biases to [E, out], and sinks to a weight."""
    made = {}
    for name, tensor in tensors.items():
        path, _, kind = name.rpartition("experts.")
        if not path:
            made[f"{name}.weight" if name.endswith("sinks") else name] = tensor
            continue
        in_turn = any(n.endswith("_bias") for n in tensors)
        rows = np.swapaxes(tensor, 1, 2) if in_turn and tensor.ndim == 3 else tensor
        stem, suffix = kind.removesuffix("_bias"), "bias" if kind.endswith("_bias") else "weight"
        if stem == "down_proj":
            made[f"{path}experts.down_proj.{suffix}"] = rows
            continue
        half = rows.shape[1] // 2
        pair = (rows[:, ::2], rows[:, 1::2]) if in_turn else (rows[:, :half], rows[:, half:])
        for part, value in zip(("gate_proj", "up_proj"), pair, strict=True):
            made[f"{path}experts.{part}.{suffix}"] = value
    return made


def test_a_window_makes_olmo2_another_model(tmp_path: Path) -> None:
    raw = {**next(c for c in CASES if c.name == "olmo2").model().config.to_dict(), "sliding_window": 8}
    tensors = {f"model.{name}.weight": np.zeros((4, 4), np.float32) for name in ("embed_tokens", "norm")}
    checkpoint = GGUFCheckpoint(write(tmp_path / "a.gguf", "olmo2", FORMS["olmo2"], raw, tensors))
    with pytest.raises(UnsupportedError, match="sliding_window: got 8; olmo2 models are supported with 0 only"):
        registry.get("olmo2").config.from_hf(checkpoint.config())


def write(path: Path, name: str, form: Form, config: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Path:
    """The file under the names of the gguf package, with metadata, order of rows and norms as its form says."""
    arch = next(a for a, text in gguf.MODEL_ARCH_NAMES.items() if text == name)
    values = {**metadata(config), **form.metadata}
    names = gguf.get_tensor_name_map(arch, values["block_count"])
    writer = gguf.GGUFWriter(path, name)
    add = {int: writer.add_uint32, float: writer.add_float32, bool: writer.add_bool, str: writer.add_string}
    for key, value in values.items():
        add[type(value)](f"{name}.{key}", value)
    heads = {"q_proj": values["attention.head_count"], "k_proj": values.get("attention.head_count_kv")}
    for hf_name, tensor in tensors.items():
        part = hf_name.split(".")[-2]
        stored = permuted(tensor, heads[part]) if form.permuted and part in heads else tensor
        stored = separated(stored, values) if form.split and part == "query_key_value" else stored
        stored = stored + 1 if form.shifted and hf_name.endswith("norm.weight") else stored
        gguf_name = next(filter(None, (names.get_name(n, (".weight", ".bias")) for n in (hf_name, short(hf_name)))))
        writer.add_tensor(gguf_name, np.ascontiguousarray(stored))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def short(hf_name: str) -> str:
    return hf_name.removeprefix("transformer.")


def metadata(config: Mapping[str, Any]) -> dict[str, Any]:
    known = {key: config[name] for name, key in KEYS.items() if config.get(name) is not None}
    head_dim = config.get("head_dim") or known["embedding_length"] // known["attention.head_count"]
    rope = config.get("rope_parameters") or {"rope_theta": 1e4}
    rope = rope.get("full_attention") or rope
    return {
        **known,
        "attention.key_length": head_dim,
        "rope.freq_base": float(rope["rope_theta"]),
        "rope.dimension_count": int(head_dim * rope.get("partial_rotary_factor", 1.0)),
    }


def permuted(rows: np.ndarray, heads: int) -> np.ndarray:
    """Permute rows from rotate-half order to interleaved pairs, in each head."""
    return rows.reshape(heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def separated(rows: np.ndarray, values: Mapping[str, Any]) -> np.ndarray:
    """Reorder rows from groups of queries, a key and a value to all queries, all keys, all values."""
    heads = values["attention.head_count"]
    groups = values.get("attention.head_count_kv", heads)
    grouped = rows.reshape(groups, heads // groups + 2, -1, *rows.shape[1:])
    parts = (grouped[:, : heads // groups], grouped[:, -2:-1], grouped[:, -1:])
    return np.concatenate([part.reshape(-1, *rows.shape[1:]) for part in parts])


torch.manual_seed(0)
