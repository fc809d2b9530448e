"""GGUF files as Hugging Face checkpoints: configs, names, and layouts of Llama and GPT-2."""

import gguf
import numpy as np
import pytest
import torch
from transformers import GPT2Config, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from mlc_errors import MLCError, UnsupportedError
from mlc_toolchain.conversion_plan import describe_model, plan_weights
from mlc_toolchain.convert_weight import ConvertOptions, convert_weight
from mlc_toolchain.gguf_checkpoint import GGUFCheckpoint
from mlc_toolchain.source import resolve_source
from quantization.schemes import get_scheme

HEADS, KV_HEADS, HIDDEN, INNER, VOCABULARY = 4, 2, 64, 96, 10
LLAMA = {
    "block_count": 1, "context_length": 128, "embedding_length": HIDDEN, "feed_forward_length": INNER,
    "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS, "attention.layer_norm_rms_epsilon": 1e-5,
}  # fmt: skip
GPT2 = {
    "block_count": 1, "context_length": 32, "embedding_length": HIDDEN, "feed_forward_length": INNER,
    "attention.head_count": HEADS, "attention.layer_norm_epsilon": 1e-5,
}  # fmt: skip
RNG = np.random.default_rng(0)


def drawn(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def llama_tensors():
    kv = HIDDEN // HEADS * KV_HEADS
    return {
        "token_embd.weight": drawn(VOCABULARY, HIDDEN),
        "output_norm.weight": drawn(HIDDEN),
        "output.weight": drawn(VOCABULARY, HIDDEN),
        "blk.0.attn_norm.weight": drawn(HIDDEN),
        "blk.0.attn_q.weight": drawn(HIDDEN, HIDDEN),
        "blk.0.attn_k.weight": drawn(kv, HIDDEN),
        "blk.0.attn_v.weight": drawn(kv, HIDDEN),
        "blk.0.attn_output.weight": drawn(HIDDEN, HIDDEN),
        "blk.0.ffn_norm.weight": drawn(HIDDEN),
        "blk.0.ffn_gate.weight": drawn(INNER, HIDDEN),
        "blk.0.ffn_up.weight": drawn(INNER, HIDDEN),
        "blk.0.ffn_down.weight": drawn(HIDDEN, INNER),
    }


def gpt2_tensors():
    shapes = {"attn_qkv": 3 * HIDDEN, "attn_output": HIDDEN, "ffn_up": INNER}
    tensors = {"token_embd.weight": drawn(VOCABULARY, HIDDEN), "position_embd.weight": drawn(32, HIDDEN)}
    for name in ("attn_norm", "ffn_norm"):
        tensors |= {f"blk.0.{name}.{kind}": drawn(HIDDEN) for kind in ("weight", "bias")}
    for name, size in shapes.items():
        tensors |= {f"blk.0.{name}.weight": drawn(size, HIDDEN), f"blk.0.{name}.bias": drawn(size)}
    tensors |= {"blk.0.ffn_down.weight": drawn(HIDDEN, INNER), "blk.0.ffn_down.bias": drawn(HIDDEN)}
    return tensors | {"output_norm.weight": drawn(HIDDEN), "output_norm.bias": drawn(HIDDEN)}


def written(path, architecture, metadata, tensors):
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in metadata.items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string, list: writer.add_array}
        add[type(value)](key if key.startswith("tokenizer") else f"{architecture}.{key}", value)
    for name, value in tensors.items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def planned(path):
    source, scheme = resolve_source(str(path)), get_scheme("q4f16_1")
    return plan_weights(describe_model(source.config(), "auto", scheme), scheme, source.weights())


def test_a_llama(tmp_path):
    tensors = llama_tensors()
    checkpoint = GGUFCheckpoint(written(tmp_path / "a.gguf", "llama", LLAMA | {"rope.freq_base": 5e5}, tensors))
    assert checkpoint.config() == {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "rope_theta": 500000.0,
        "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": 1,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False,
    }  # fmt: skip
    query = checkpoint.read("model.layers.0.self_attn.q_proj.weight")
    size = HIDDEN // HEADS
    for head in range(HEADS):
        for row in range(size):  # the first half of a head's rows are the even ones of the file
            stored = head * size + (2 * row if row < size // 2 else 2 * row - size + 1)
            assert np.array_equal(query[head * size + row], tensors["blk.0.attn_q.weight"][stored])
    assert np.array_equal(checkpoint.read("model.layers.0.self_attn.v_proj.weight"), tensors["blk.0.attn_v.weight"])
    assert len(planned(tmp_path / "a.gguf").tasks) == 9


def test_a_tied_llama_without_kv_heads(tmp_path):
    tensors = llama_tensors()
    del tensors["output.weight"]
    tensors["blk.0.attn_k.weight"] = drawn(HIDDEN, HIDDEN)
    tensors["blk.0.attn_v.weight"] = drawn(HIDDEN, HIDDEN)
    metadata = {key: value for key, value in LLAMA.items() if "kv" not in key}
    config = GGUFCheckpoint(written(tmp_path / "a.gguf", "llama", metadata, tensors)).config()
    assert config["tie_word_embeddings"] is True
    assert "num_key_value_heads" not in config
    assert len(planned(tmp_path / "a.gguf").tasks) == 8


@pytest.mark.parametrize(("factor", "high", "original"), [(8.0, 4.0, 8192), (32.0, 4.0, 8192), (2.0, 32.0, 131072)])
def test_rotary_scaling_of_llama3_is_recovered(factor, high, original, tmp_path):
    scaling = {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": high}
    scaling |= {"original_max_position_embeddings": original}
    config = LlamaConfig(
        hidden_size=HIDDEN * 8, num_attention_heads=HEADS, rope_parameters={"rope_theta": 5e5, **scaling}
    )
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    half = len(scaled)
    plain = 1.0 / (5e5 ** (torch.arange(0, 2 * half, 2) / (2 * half)))
    tensors = llama_tensors() | {"rope_freqs.weight": (plain / scaled).numpy().astype(np.float32)}
    path = written(tmp_path / "a.gguf", "llama", LLAMA | {"rope.freq_base": 5e5}, tensors)
    assert GGUFCheckpoint(path).config()["rope_scaling"] == scaling
    assert "rope_freqs.weight" not in GGUFCheckpoint(path).names()


def test_other_rotary_scalings(tmp_path):
    tensors = llama_tensors()
    linear = LLAMA | {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
    config = GGUFCheckpoint(written(tmp_path / "a.gguf", "llama", linear, tensors)).config()
    assert config["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}
    odd = tensors | {"rope_freqs.weight": np.full(8, 3, np.float32)}
    with pytest.raises(UnsupportedError, match="does not belong to a known rotary scaling"):
        GGUFCheckpoint(written(tmp_path / "b.gguf", "llama", LLAMA, odd)).config()
    yarn = LLAMA | {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.yarn_beta_fast": 16.0}
    config = GGUFCheckpoint(written(tmp_path / "c.gguf", "llama", yarn, tensors)).config()
    assert config["rope_scaling"] == {"rope_type": "yarn", "factor": 4.0, "beta_fast": 16.0}
    with pytest.raises(UnsupportedError, match=r"llama\.rope\.scaling\.attn_factor is not supported"):
        factor = yarn | {"rope.scaling.attn_factor": 2.0}
        GGUFCheckpoint(written(tmp_path / "d.gguf", "llama", factor, tensors)).config()
    with pytest.raises(UnsupportedError, match="'longrope'"):
        longrope = LLAMA | {"rope.scaling.type": "longrope"}
        GGUFCheckpoint(written(tmp_path / "e.gguf", "llama", longrope, tensors)).config()


def test_a_gpt2_has_its_matrices_transposed_back(tmp_path):
    tensors = gpt2_tensors()
    checkpoint = GGUFCheckpoint(written(tmp_path / "a.gguf", "gpt2", GPT2, tensors))
    assert checkpoint.info("transformer.h.0.attn.c_attn.weight").shape == (HIDDEN, 3 * HIDDEN)
    made = checkpoint.read("transformer.h.0.attn.c_attn.weight")
    assert np.array_equal(made, tensors["blk.0.attn_qkv.weight"].T)
    assert np.array_equal(checkpoint.read("transformer.h.0.ln_2.bias"), tensors["blk.0.ffn_norm.bias"])
    config = GPT2Config(**checkpoint.config())
    assert (config.n_embd, config.n_head, config.n_layer, config.n_inner) == (HIDDEN, HEADS, 1, INNER)
    assert planned(tmp_path / "a.gguf").model.model_type == "gpt2"


def test_what_a_gguf_may_not_be(tmp_path):
    tensors = llama_tensors()
    cases = {
        "architecture 'gptj'; expected one of llama, gpt2": ("gptj", LLAMA, tensors),
        "'gpt2' with experts; expected one of llama, qwen2moe": ("gpt2", GPT2 | {"expert_count": 8}, tensors),
        "'blk.0.attn_sinks.weight' has no place": ("llama", LLAMA, tensors | {"blk.0.attn_sinks.weight": drawn(4)}),
    }
    for message, arguments in cases.items():
        with pytest.raises(UnsupportedError, match=message):
            GGUFCheckpoint(written(tmp_path / "a.gguf", *arguments))
    incomplete = {key: value for key, value in LLAMA.items() if key != "block_count"}
    with pytest.raises(MLCError, match=r"llama.block_count is None; expected one positive number"):
        GGUFCheckpoint(written(tmp_path / "a.gguf", "llama", incomplete, tensors)).config()
    part = LLAMA | {"attention.head_count": 0.5}
    with pytest.raises(MLCError, match=r"0.5; expected an integer"):
        path = written(tmp_path / "a.gguf", "llama", part, tensors)
        GGUFCheckpoint(path).read("model.layers.0.self_attn.q_proj.weight")
    uneven = tensors | {"blk.0.attn_q.weight": drawn(HIDDEN - 2, HIDDEN)}
    with pytest.raises(MLCError, match="shape"):
        planned(written(tmp_path / "a.gguf", "llama", LLAMA, uneven))


def test_a_folder_with_one_gguf_is_a_source(tmp_path):
    written(tmp_path / "a.gguf", "llama", LLAMA, llama_tensors())
    convert_weight(ConvertOptions(str(tmp_path), "q4f16_1", tmp_path / "out"))
    assert (tmp_path / "out" / "tensor-cache.json").exists()
    written(tmp_path / "b.gguf", "llama", LLAMA, llama_tensors())
    with pytest.raises(MLCError, match=r"the folder has 2 .gguf files"):
        resolve_source(str(tmp_path))
