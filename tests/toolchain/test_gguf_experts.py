"""GGUF files with experts give the same parameters as the checkpoints that they were made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import transformers

from mlc_toolchain.conversion_plan import describe_model
from mlc_toolchain.gguf_checkpoint import GGUFCheckpoint
from mlc_toolchain.gguf_experts import MIXTURES
from mlc_toolchain.gguf_mamba import STATE_SPACE_MIXTURES
from mlc_toolchain.gguf_mixtures import FAMILY_MIXTURES
from mlc_toolchain.gguf_recurrent import RECURRENT_MIXTURES
from mlc_toolchain.gguf_routed import ROUTED_MIXTURES
from mlc_toolchain.gguf_routed_families import ROUTED_FAMILIES
from quantization.schemes import get_scheme
from tests.model_zoo.architecture_cases import LLAMA_LIKE, Case
from tests.toolchain.test_gguf_architectures import FORMS, permuted

SCHEME = get_scheme("q0f32")
SIZES: dict[str, Any] = {**LLAMA_LIKE, "num_hidden_layers": 1, "num_experts_per_tok": 2}
OPTIONS: dict[str, dict[str, Any]] = {
    "llama": {"num_local_experts": 3},
    "qwen2moe": {"num_experts": 3, "moe_intermediate_size": 20, "shared_expert_intermediate_size": 28},
    "qwen3moe": {"num_experts": 3, "moe_intermediate_size": 20, "head_dim": 12, "norm_topk_prob": True},
    "olmoe": {"num_experts": 3},
}
CONFIGS = {
    "llama": transformers.MixtralConfig,
    "qwen2moe": transformers.Qwen2MoeConfig,
    "qwen3moe": transformers.Qwen3MoeConfig,
    "olmoe": transformers.OlmoeConfig,
}
KEYS = {
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "context_length": "max_position_embeddings",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    "attention.key_length": "head_dim",
}


def write(path: Path, name: str, config: dict[str, Any], tensors: dict[str, np.ndarray]) -> Path:
    """Write a GGUF file as llama.cpp's converter does: rows of Llama's queries and keys permuted, expert matrices
    separate."""
    writer = gguf.GGUFWriter(path, name)
    for key, hf_key in KEYS.items():
        value = config.get(hf_key)
        if value is not None:
            (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(f"{name}.{key}", value)
    writer.add_uint32(f"{name}.expert_count", 3)
    writer.add_float32(f"{name}.rope.freq_base", config["rope_parameters"]["rope_theta"])
    arch = next(a for a, text in gguf.MODEL_ARCH_NAMES.items() if text == name)
    names = gguf.get_tensor_name_map(arch, 1)
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for hf_name, tensor in tensors.items():
        part = hf_name.split(".")[-2]
        stored = permuted(tensor, heads[part]) if name == "llama" and part in heads else tensor.squeeze()
        writer.add_tensor(names.get_name(hf_name, (".weight", ".bias")), np.ascontiguousarray(stored))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def stacks_apart(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    made = {}
    for name, tensor in tensors.items():
        if name.endswith("experts.gate_up_proj"):
            stem = name.removesuffix("gate_up_proj")
            gates, inputs = np.split(tensor, 2, axis=1)
            made |= {f"{stem}gate_proj.weight": gates, f"{stem}up_proj.weight": inputs}
        else:
            made[f"{name}.weight" if name.endswith("experts.down_proj") else name] = tensor
    return made


def test_every_architecture_is_tested() -> None:
    others = (STATE_SPACE_MIXTURES, RECURRENT_MIXTURES, ROUTED_MIXTURES, ROUTED_FAMILIES, FAMILY_MIXTURES)
    elsewhere = {name for mixtures in others for name in mixtures}
    assert set(MIXTURES) == set(CONFIGS) | {name for name, form in FORMS.items() if form.experts} | elsewhere


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_are_those_of_the_checkpoint(name: str, tmp_path: Path) -> None:
    case = Case(MIXTURES[name].model_type, CONFIGS[name], OPTIONS[name], sizes=SIZES)
    model = case.model()
    tensors = {n: t.numpy() for n, t in model.state_dict().items()}
    checkpoint = GGUFCheckpoint(write(tmp_path / "a.gguf", name, model.config.to_dict(), stacks_apart(tensors)))
    described = describe_model(checkpoint.config(), "auto", SCHEME)
    assert described.parameters == describe_model(model.config.to_dict(), "auto", SCHEME).parameters
    shapes = {n: checkpoint.info(n).shape for n in checkpoint.names()}
    both = (shapes, {n: t.shape for n, t in tensors.items()})
    plans = [described.weight_map.resolve(described.parameters, s) for s in both]
    made, wanted = ({p.name: p.value for p in plan.productions} for plan in plans)
    for parameter, value in made.items():
        expected = wanted[parameter].evaluate(tensors.__getitem__)
        np.testing.assert_array_equal(value.evaluate(checkpoint.read), expected, err_msg=parameter)
