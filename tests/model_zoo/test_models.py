"""Every architecture against transformers: prefill, decode, and sequences of different lengths in one call."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from mlc_compiler.ir.structural import first_difference
from mlc_compiler.passes.legalize import Legalize
from mlc_compiler.script import parse, script
from model_zoo import registry
from quantization.group import decode, encode
from quantization.schemes import get_scheme
from tests.model_zoo.interpreted import VOCAB, Interpreted, checkpoint, hf_logits, hugging_face, parameters_of

TOLERANCE = 2e-5
HIDDEN_STATES = "batch_prefill_to_last_hidden_states"
DECODER = ("embed", "prefill", "decode", "batch_prefill", "batch_decode", "batch_verify")
FUNCTIONS = [*DECODER, HIDDEN_STATES, "penalize", "sample", "sample_filtered", "logprobs"]
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
VARIANTS = [
    ("llama", {}),
    ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "rope_parameters": LLAMA3}),
    ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}}),
    (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e4,
                "factor": 4.0,
                "original_max_position_embeddings": 16,
            }
        },
    ),
    ("mistral", {"sliding_window": 7}),
    ("mixtral", {}),
    ("mixtral", {"sliding_window": 7, "num_experts_per_tok": 4, "tie_word_embeddings": True}),
    ("qwen2", {}),
    ("qwen2", {"tie_word_embeddings": True}),
    ("qwen2_moe", {}),
    ("qwen2_moe", {"norm_topk_prob": True, "num_experts_per_tok": 1, "tie_word_embeddings": True}),
    ("gpt2", {}),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True, "tie_word_embeddings": False}),
]


@pytest.mark.parametrize(("kind", "options"), VARIANTS)
def test_logits_equal_those_of_transformers(kind, options):
    check_all_functions(hugging_face(kind, **options), "q0f32", TOLERANCE)


def check_all_functions(model, scheme, tolerance):
    """Compare every function that returns logits, on two sequences a and b."""
    ours = Interpreted(model, scheme)
    rng = np.random.default_rng(6)
    a, b = rng.integers(0, VOCAB, 21), rng.integers(0, VOCAB, 8)
    expected_a, expected_b = hf_logits(model, a), hf_logits(model, b)

    def close(got, expected):
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)

    close(ours("batch_verify", a[:5], [0] * 5, range(5), (1, 5))[0], expected_a[:5])
    close(ours("prefill", a[5:17], [0] * 12, range(5, 17), (1, 12))[0, 0], expected_a[16])
    close(ours("decode", a[17:18], [0], [17], (1, 1))[0, 0], expected_a[17])
    mixed, seq = [*a[18:20], *b[:6]], [0] * 2 + [1] * 6
    got = ours("batch_prefill", mixed, seq, [18, 19, *range(6)], (1, 8), np.array([7, 1], np.int32))
    close(got[0], [expected_b[5], expected_a[19]])
    got = ours("batch_decode", [b[6], a[20]], [1, 0], [6, 20], (2, 1))
    close(got[:, 0], [expected_b[6], expected_a[20]])


@pytest.mark.parametrize(
    ("kind", "scheme"),
    [("llama", "q4f32_1"), ("gpt2", "q4f16_0"), ("llama", "q3f16_0"), ("llama", "q4f16_2"), ("mixtral", "q4f32_1")],
)
def test_quantized_model_computes_with_the_decoded_weights(kind, scheme):
    model = hugging_face(kind, tie_word_embeddings=True)
    expected = hf_logits(with_decoded_weights(model, get_scheme(scheme)), range(9))
    got = Interpreted(model, scheme)("batch_verify", range(9), [1] * 9, range(9), (1, 9))
    np.testing.assert_allclose(got[0], expected, rtol=TOLERANCE, atol=TOLERANCE)


def with_decoded_weights(model, scheme):
    """A copy whose weights were quantized and dequantized; GPT-2 stores its Conv1D matrices transposed."""
    copy = type(model)(model.config).eval()
    dtype = getattr(torch, scheme.model_dtype)
    with torch.no_grad():
        for (name, source), target in zip(model.named_parameters(), copy.parameters()):
            is_table = any(part in name for part in ("embed_tokens", "wte", "wpe"))
            kept = source.ndim < 2 or name.endswith("mlp.gate.weight") or (is_table and not scheme.quantize_embedding)
            target.copy_(source.to(dtype) if kept else decoded(name, source, scheme, "NK" if is_table else None))
    return copy


def decoded(name, source, scheme, layout):
    transposed = any(part in name for part in ("c_attn", "c_proj", "c_fc"))
    matrix = source.numpy().T if transposed else source.numpy()
    stored = encode(np.ascontiguousarray(matrix), scheme, layout)
    wide = {"q_weight": stored["q_weight"], "q_scale": stored["q_scale"].astype(np.float32)}
    values = torch.from_numpy(decode(wide, replace(scheme, model_dtype="float32"), matrix.shape[-1], layout))
    return values.T if transposed else values


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma3_text", "falcon", "baichuan", "ministral3", "apertus"])
def test_exported_module_prints_and_parses_back(name):
    exported = registry.export_model(registry.get(name).tiny, get_scheme("q4f16_1"))
    for mod in (exported.mod, Legalize().run(exported.mod)):
        assert first_difference(parse(script(mod)), mod) is None
        assert [f for f in mod if f in FUNCTIONS] == FUNCTIONS


def test_signatures_are_those_of_the_runtime():
    exported = registry.export_model(registry.get("llama").tiny)
    cache = ["k_pages", "v_pages", "page_table", "token_seq", "token_pos", "packed_params"]
    expected = {
        "embed": ["input_ids", "packed_params"],
        "prefill": ["input_embed", *cache],
        "decode": ["input_embed", *cache],
        "batch_prefill": ["input_embed", "logit_positions", *cache],
        "batch_decode": ["input_embed", *cache],
        "batch_verify": ["input_embed", *cache],
        HIDDEN_STATES: ["input_embed", *cache],
        "penalize": ["logits", "token_ids", "counts", "bias", "presence", "frequency", "repetition"],
        "sample": ["logits", "temperature", "top_p", "uniform"],
        "sample_filtered": ["logits", "temperature", "top_k", "top_p", "min_p", "typical_p", "uniform"],
        "logprobs": ["logits", "token"],
    }
    assert {name: [p.name for p in exported.mod[name].params] for name in FUNCTIONS} == expected
    bounds = {
        name: exported.mod[name].attrs.get("tir_var_upper_bound") for name in ("prefill", "batch_prefill", "decode")
    }
    assert bounds == {
        "prefill": {"seq_len": 256},
        "batch_prefill": {"seq_len": 256, "batch_size": 128},
        "decode": {},
    }


def test_parameters_of_a_quantized_export():
    exported = registry.export_model(registry.get("llama").tiny, get_scheme("q4f16_1"))
    infos = {p.name: (p.shape, p.dtype) for p in exported.params}
    assert infos["model.embed_tokens.q_weight"] == ((1003, 16), "uint32")
    assert infos["model.embed_tokens.q_scale"] == ((1003, 4), "float16")
    assert infos["model.layers.1.mlp.down_proj.q_weight"] == ((100, 20), "uint32")
    assert infos["model.norm.weight"] == ((100,), "float16")
    (cache,) = exported.states
    assert cache.describe() == {
        "kind": "paged_kv",
        "prefix": "",
        "num_hidden_layers": 2,
        "num_attention_heads": 5,
        "num_key_value_heads": 1,
        "head_dim": 20,
        "v_head_dim": 20,
        "page_size": 16,
        "dtype": "float16",
        "sliding_window_size": -1,
        "attention_sink_size": 0,
    }


def test_mixtral_has_the_same_weights_in_checkpoints_with_a_tensor_for_each_expert():
    model = hugging_face("mixtral")
    stacked, scheme = checkpoint(model), get_scheme("q0f32")
    config = registry.get("mixtral").config.from_hf(model.config.to_dict())
    wanted = parameters_of(stacked, config, scheme)
    got = parameters_of(dict(by_expert(stacked)), config, scheme)
    assert got.keys() == wanted.keys()
    assert all(np.array_equal(got[name], array) for name, array in wanted.items())


def by_expert(stacked):
    """The tensors under the names of the published checkpoints."""
    for name, array in stacked.items():
        path, _, kind = name.replace(".mlp.", ".block_sparse_moe.").rpartition(".")
        for expert, matrix in enumerate(array):
            if kind == "gate_up_proj":
                yield f"{path}.{expert}.w1.weight", matrix[: len(matrix) // 2]
                yield f"{path}.{expert}.w3.weight", matrix[len(matrix) // 2 :]
            elif kind == "down_proj":
                yield f"{path}.{expert}.w2.weight", matrix
        if kind not in ("gate_up_proj", "down_proj"):
            yield f"{path}.{kind}", array
