"""A Llama's GGUF as a Hugging Face checkpoint, made with the gguf package: a reference independent of our reader."""

import json

import gguf
import numpy as np
import safetensors.numpy

NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_output": "self_attn.o_proj",
    **{f"attn_{p}": f"self_attn.{p}_proj" for p in "qkv"},
    **{f"ffn_{p}": f"mlp.{p}_proj" for p in ("gate", "up", "down")},
}
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def hf_name(name):
    *block, stem, kind = name.split(".")
    return f"model.layers.{block[1]}.{NAMES[stem]}.{kind}" if block else f"{WHOLE[stem]}.{kind}"


def unpermuted(rows, heads):
    """Rows of a head from interleaved pairs to halves: row 2i is row i of the first half, row 2i + 1 row i of the
    second."""
    made = np.empty_like(rows)
    size = len(rows) // heads
    for head in range(heads):
        for i in range(size // 2):
            for half in range(2):
                made[head * size + half * (size // 2) + i] = rows[head * size + 2 * i + half]
    return made


def hf_tensors(reader, dtype):
    """The tensors of an opened GGUFReader by their Hugging Face names, in ``dtype``."""
    config = hf_config(reader)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    tensors = {}
    for tensor in reader.tensors:
        data = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(dtype)
        stem = tensor.name.split(".")[-2]
        tensors[hf_name(tensor.name)] = unpermuted(data, heads[stem]) if stem in heads else data
    return tensors


def hf_config(reader):
    """config.json for an opened GGUFReader."""

    def value(key):
        return reader.fields[key].contents()

    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": value("llama.embedding_length"),
        "intermediate_size": value("llama.feed_forward_length"),
        "num_hidden_layers": value("llama.block_count"),
        "num_attention_heads": value("llama.attention.head_count"),
        "num_key_value_heads": value("llama.attention.head_count_kv"),
        "head_dim": value("llama.embedding_length") // value("llama.attention.head_count"),
        "max_position_embeddings": value("llama.context_length"),
        "rms_norm_eps": 1e-5,
        "rope_theta": value("llama.rope.freq_base"),
        "vocab_size": value("llama.vocab_size"),
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": value("tokenizer.ggml.bos_token_id"),
        "eos_token_id": value("tokenizer.ggml.eos_token_id"),
    }


def write_hf_checkpoint(gguf_path, folder, dtype="float16"):
    """config.json and model.safetensors in ``dtype``."""
    reader = gguf.GGUFReader(gguf_path)
    safetensors.numpy.save_file(hf_tensors(reader, dtype), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(hf_config(reader), indent=2))
