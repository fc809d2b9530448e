import json
import subprocess
import sys

import numpy as np
import pytest
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from mlc_errors import MLCError, UnsupportedError
from model_zoo import decoder, granite_hybrid, kimi_linear, lfm2, nemotron_h, registry
from model_zoo.gpt2 import GPT2Config
from model_zoo.llama import LlamaConfig
from model_zoo.mistral import MistralConfig
from model_zoo.rope import RopeParameters

LLAMA = {
    "model_type": "llama",
    "vocab_size": 1000,
    "hidden_size": 128,
    "intermediate_size": 176,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
}
# The order in which the public tool writes these keys, and its values for this model.
PUBLIC = """{"hidden_size": 128, "intermediate_size": 176, "num_attention_heads": 4, "num_hidden_layers": 2,
 "rms_norm_eps": 1e-05, "vocab_size": 1000, "tie_word_embeddings": false, "position_embedding_base": 10000.0,
 "rope_scaling": null, "context_window_size": 256, "prefill_chunk_size": 256, "num_key_value_heads": 2,
 "head_dim": 32, "tensor_parallel_shards": 1, "pipeline_parallel_stages": 1, "max_batch_size": 128,
 "disaggregation": false}"""
SCALINGS = [
    {"rope_type": "linear", "factor": 4.0},
    {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    {
        "rope_type": "yarn",
        "factor": 40.0,
        "original_max_position_embeddings": 64,
        "mscale": 0.707,
        "mscale_all_dim": 1.0,
        "beta_fast": 16,
        "truncate": False,
    },
    {"rope_type": "dynamic", "factor": 4.0},
]


def test_defaults_are_filled_in():
    config = LlamaConfig.from_hf(LLAMA)
    assert (config.head_dim, config.context_window_size, config.prefill_chunk_size) == (32, 256, 256)
    assert config.rope.attention_factor == 1.0
    assert LlamaConfig.from_hf({**LLAMA, "num_key_value_heads": None}).num_key_value_heads == 4
    assert LlamaConfig.from_hf({**LLAMA, "max_position_embeddings": 131072}).prefill_chunk_size == 2048


def test_chat_model_config_is_the_public_one():
    made = LlamaConfig.from_hf(LLAMA).chat_model_config()
    assert json.dumps(made) == json.dumps(json.loads(PUBLIC))


@pytest.mark.parametrize("name", registry.ARCHITECTURES)
def test_chat_model_config_gives_the_same_config_again(name):
    architecture = registry.get(name)
    written = json.loads(json.dumps(architecture.tiny.chat_model_config()))
    assert architecture.config.from_hf(written) == architecture.tiny


def test_chat_model_config_keeps_fields_without_a_public_key():
    config = LlamaConfig.from_hf({**LLAMA, "attention_bias": True, "rope_scaling": SCALINGS[0]})
    again = LlamaConfig.from_hf(json.loads(json.dumps(config.chat_model_config())))
    assert (again.attention_bias, again.rope_scaling) == (True, SCALINGS[0])


def test_llama3_scaling_with_one_bound_is_a_step():
    """Llama 4 Scout: wavelengths beyond the original context are divided, the others kept."""
    bounds = {"rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0}
    config = {**LLAMA, "rope_theta": 1e4}
    plain = LlamaConfig.from_hf(config).rope.inv_freq
    scaled = LlamaConfig.from_hf({**config, "rope_scaling": {**bounds, "original_max_position_embeddings": 64}}).rope
    is_long = 2 * np.pi / plain > 64
    assert 0 < is_long.sum() < len(plain)
    np.testing.assert_allclose(scaled.inv_freq, np.where(is_long, plain / 16, plain), rtol=1e-6)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_both_spellings_of_rotary_scaling(scaling):
    old = LlamaConfig.from_hf({**LLAMA, "rope_theta": 5e4, "rope_scaling": scaling})
    new = LlamaConfig.from_hf({**LLAMA, "rope_parameters": {"rope_theta": 5e4, **scaling}})
    legacy = {"type" if k == "rope_type" else k: v for k, v in scaling.items()}
    older = LlamaConfig.from_hf({**LLAMA, "rope_theta": 5e4, "rope_scaling": legacy})
    assert np.array_equal(old.rope.inv_freq, new.rope.inv_freq)
    assert np.array_equal(old.rope.inv_freq, older.rope.inv_freq)
    assert old.rope.attention_factor == new.rope.attention_factor


def test_theta_beside_the_scaling_is_read():
    scaling = {"rope_type": "linear", "factor": 2.0, "finetuned": True, "extrapolation_factor": 1}
    beside = LlamaConfig.from_hf({**LLAMA, "rope_scaling": {**scaling, "rope_theta": 5e4}})
    assert beside == LlamaConfig.from_hf({**LLAMA, "rope_theta": 5e4, "rope_scaling": scaling})
    theirs = transformers.LlamaConfig(rope_theta=1e4, rope_scaling={**scaling, "rope_theta": 5e4})
    assert beside.rope_theta == theirs.rope_parameters["rope_theta"]


def test_encoders_are_not_causal():
    eurobert = registry.get("eurobert")
    written = eurobert.tiny.chat_model_config()
    assert eurobert.config.from_hf({**written, "is_causal": False}) == eurobert.tiny
    with pytest.raises(UnsupportedError, match="is_causal: got True; eurobert models are supported with False only"):
        eurobert.config.from_hf({**written, "is_causal": True})


@pytest.mark.parametrize("scaling", SCALINGS)
def test_frequencies_equal_those_of_transformers(scaling):
    parameters = {"rope_theta": 5e5, **scaling}
    theirs = transformers.LlamaConfig(hidden_size=120, num_attention_heads=2, rope_parameters=parameters)
    expected, factor = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](theirs)
    ours = RopeParameters.from_hf(60, 5e5, scaling, theirs.max_position_embeddings)
    np.testing.assert_allclose(ours.inv_freq, expected.numpy(), rtol=1e-6)
    assert ours.inv_freq.dtype == np.float32
    assert ours.attention_factor == pytest.approx(factor, rel=1e-12)


@pytest.mark.parametrize(("context", "name"), [(64, "short_factor"), (65, "long_factor")])
def test_longrope_takes_the_factors_of_the_context(context, name):
    factors = {"long_factor": [1.0 + i / 3 for i in range(30)], "short_factor": [1.0 + i / 9 for i in range(30)]}
    scaling = {"rope_type": "longrope", **factors, "factor": 4.0, "original_max_position_embeddings": 64}
    theirs = transformers.LlamaConfig(
        hidden_size=120, num_attention_heads=2, rope_parameters={"rope_theta": 5e5, **scaling}
    )
    expected, attention_factor = ROPE_INIT_FUNCTIONS["longrope"](theirs, seq_len=context)
    ours = RopeParameters.from_hf(60, 5e5, scaling, context)
    np.testing.assert_allclose(ours.inv_freq, expected.numpy(), rtol=1e-6)
    assert ours.attention_factor == pytest.approx(attention_factor, rel=1e-12)
    changed = {**scaling, name: scaling[name][:-1]}
    with pytest.raises(MLCError, match=f"rope_scaling.{name}: expected a list of 30 numbers"):
        RopeParameters.from_hf(60, 5e5, changed, context)


def test_gpt2_names():
    config = GPT2Config.from_hf(
        {"vocab_size": 50, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 40, "n_inner": None}
    )
    assert (config.hidden_size, config.num_hidden_layers, config.head_dim, config.intermediate_size) == (12, 2, 4, 48)
    assert (config.max_position_embeddings, config.context_window_size, config.rope) == (40, 40, None)
    with pytest.raises(MLCError, match="got 41; expected at most the 40 learned positions"):
        GPT2Config.from_hf({**config.chat_model_config(), "context_window_size": 41})


def test_sliding_window_of_mistral():
    assert MistralConfig.from_hf({**LLAMA, "sliding_window": 64}).sliding_window == 64
    assert MistralConfig.from_hf(LLAMA).sliding_window == transformers.MistralConfig().sliding_window
    assert MistralConfig.from_hf({**LLAMA, "sliding_window": None}).sliding_window is None
    assert MistralConfig.from_hf({**LLAMA, "sliding_window_size": -1}).sliding_window is None
    assert MistralConfig.from_hf({**LLAMA, "sliding_window": 64, "use_sliding_window": False}).sliding_window is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_act", "gelu"),
        ("num_local_experts", 8),
        ("attn_logit_softcapping", 50.0),
        ("partial_rotary_factor", 0.5),
        ("quantization_config", {"quant_method": "gptq"}),
        ("sliding_window", 64),
        ("layer_types", ["full_attention", "sliding_attention"]),
        ("rope_parameters", {"full_attention": {"rope_theta": 1e4}}),
        ("rope_scaling", {"rope_type": "spiral", "factor": 2}),
        ("rope_scaling.spiral", {"rope_type": "linear", "factor": 2, "spiral": 3}),
        ("rope_scaling.llama_4_scaling_beta", {"rope_type": "linear", "factor": 2, "llama_4_scaling_beta": 0.1}),
        ("rope_scaling.attn_factor", {"rope_type": "yarn", "factor": 2, "attn_factor": 0.5}),
        ("is_causal", False),
        ("mamba_d_state", 16),
    ],
)
def test_what_changes_the_computation_is_refused(key, value):
    with pytest.raises(UnsupportedError, match=f"^{key}: "):
        LlamaConfig.from_hf({**LLAMA, key.split(".")[0]: value})


@pytest.mark.parametrize("name", registry.ARCHITECTURES)
def test_a_key_without_a_meaning_is_refused_by_every_architecture(name):
    architecture = registry.get(name)
    written = architecture.tiny.chat_model_config()
    with pytest.raises(UnsupportedError, match="mixer_kind: ") as error:
        architecture.config.from_hf({**written, "mixer_kind": "fast", "eos_token_id": 3, "mixer_bias": False})
    assert "mixer_bias" not in error.value.message


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("gemma2", {"layer_types": ["full_attention"]}, "layer_types: got 1 entries; expected 2"),
        ("gemma2", {"layer_types": ["linear_attention"] * 2}, "layer_types: got 'linear_attention'"),
        ("qwen3", {"hidden_act": "gelu_10"}, "hidden_act: got 'gelu_10'; expected one of silu, "),
        ("apertus", {"hidden_act": "silu"}, "hidden_act: got 'silu'; expected 'xielu'"),
        ("mpt", {"attn_config": {"qk_ln": True}}, "attn_config.qk_ln: got True; expected False"),
        ("mpt", {"no_bias": False}, "no_bias: got false"),
        ("opt", {"do_layer_norm_before": False}, "do_layer_norm_before: got False; expected True"),
        ("opt", {"context_window_size": 300}, "got 300; expected at most the 256 learned positions"),
        ("chatglm", {"add_bias_linear": True}, "add_bias_linear: got true"),
        ("baichuan", {"position_embedding": "learned"}, "position_embedding: got 'learned'"),
        (
            "phi3_v",
            {"embd_layer": {"hd_transform_order": "glb_sub"}},
            "hd_transform_order: got glb_sub; phi3_v models are supported with 'sub_glb' only",
        ),
        ("gemma3", {"text_config": 3}, "text_config: expected an object"),
        ("gemma4", {"use_bidirectional_attention": "all"}, "use_bidirectional_attention: got 'all'; expected none or"),
        ("gemma4", {"vision_config": {"num_key_value_heads": 4}}, "num_key_value_heads: got 4; expected 12"),
        ("gemma4", {"vision_config": {"head_dim": 66}}, "head_dim: got 66; expected 68"),
        ("gemma4", {"vision_config": {"model_type": "siglip"}}, "got model_type 'siglip'; expected gemma4_vision"),
        ("lfm2_vl", {"vision_config": {"num_patches": 27}}, "num_patches: got 27; expected a square, such as 25"),
        ("lfm2_vl", {"vision_config": {"num_attention_heads": 5}}, "got 768; expected a multiple of the 5 heads"),
        ("lfm2_vl", {"vision_config": {"model_type": "clip"}}, "got model_type 'clip'; expected siglip2_vision_model"),
        ("lfm2_vl", {"use_thumbnail": False}, "use_thumbnail: got False; lfm2_vl models are supported with True only"),
        (
            "phi3",
            {"rope_scaling": {"type": "longrope", "long_factor": [1.0], "short_factor": [1.0]}},
            "_factor: expected",
        ),
    ],
)
def test_what_an_architecture_cannot_compute_is_refused(name, changed, message):
    architecture = registry.get(name)
    with pytest.raises(MLCError) as error:
        architecture.model(architecture.config.from_hf({**architecture.tiny.chat_model_config(), **changed}))
    assert message in error.value.message


@pytest.mark.parametrize("name", ["deepseek_v32", "glm_moe_dsa"])
def test_an_indexer_ends_the_context_where_it_would_choose(name):
    config = registry.get(name).config
    sizes = {k: v for k, v in registry.get(name).tiny.chat_model_config().items() if k != "context_window_size"}
    assert config.from_hf({**sizes, "max_position_embeddings": 163840, "index_topk": 512}).context_window_size == 512
    assert config.from_hf({**sizes, "max_position_embeddings": 163840}).context_window_size == 2048
    assert config.from_hf({**sizes, "max_position_embeddings": 100}).context_window_size == 100
    with pytest.raises(UnsupportedError, match="context_window_size: got 4096; expected at most index_topk, 2048"):
        config.from_hf({**sizes, "context_window_size": 4096})
    with pytest.raises(UnsupportedError, match="layer_types"):
        config.from_hf({**sizes, "layer_types": ["indexed_attention", "linear_attention"]})


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (transformers.Gemma4TextConfig, {"global_head_dim": 512, "head_dim": 256, "num_hidden_layers": 30}),
        (transformers.SolarOpenConfig, {"moe_intermediate_size": 1280, "first_k_dense_replace": None}),
        (transformers.Ministral3Config, {"context_window_size": 262144, "num_hidden_layers": 34}),
        (transformers.Mistral4Config, {"kv_lora_rank": 256, "num_hidden_layers": 36}),
    ],
)
def test_defaults_of_transformers_are_accepted(config, expected):
    """With layers named "05", without a size that no layer has, with a length in the scaling of RoPE."""
    raw = json.loads(config().to_json_string(use_diff=False))
    found = registry.get(config.model_type).config.from_hf(raw)
    assert {name: getattr(found, name) for name in expected} == expected


def test_layer_types_follow_from_their_pattern():
    gemma2, exaone4 = registry.get("gemma2").tiny, registry.get("exaone4").tiny
    assert gemma2.layer_types == ("sliding_attention", "full_attention")
    assert [(k.name, k.window) for k in gemma2.attention_kinds] == [("window", 21), ("", None)]
    assert [(k.name, k.rope is None) for k in exaone4.attention_kinds] == [("window", False), ("nope", True)]
    without = type(exaone4).from_hf({**exaone4.chat_model_config(), "sliding_window": None, "layer_types": None})
    assert [(k.name, k.rope is None) for k in without.attention_kinds] == [("", False)] * 2


@pytest.mark.parametrize("name", ["qwen3", "qwen3_moe", "smollm3"])
@pytest.mark.parametrize("switch", [{}, {"use_sliding_window": False}, {"use_sliding_window": True}])
def test_windows_that_are_switched_on_by_a_key(name, switch):
    given = {"sliding_window": 40, "num_hidden_layers": 5, "max_window_layers": 2, "layer_types": None, **switch}
    theirs = transformers.AutoConfig.for_model(name, **given)
    ours = registry.get(name).config.from_hf({**LLAMA, **given})
    expected = getattr(theirs, "layer_types", None) or ["sliding_attention"] * 5  # Qwen3-MoE has the same in all layers
    windows = [theirs.sliding_window if kind == "sliding_attention" else None for kind in expected]
    assert [kind.window for kind in ours.attention_kinds] == windows
    assert any(windows) == bool(switch.get("use_sliding_window"))


def test_harmless_keys_are_ignored():
    harmless = {"torch_dtype": "bfloat16", "attention_dropout": 0.1, "use_cache": True, "hidden_act": "silu"}
    harmless |= {"_private": 3, "switched_off": False, "not_given": None}
    assert LlamaConfig.from_hf({**LLAMA, **harmless}) == LlamaConfig.from_hf(LLAMA)


@pytest.mark.parametrize(
    ("name", "key", "value", "other"),
    [
        ("gemma2", "hidden_act", "gelu_pytorch_tanh", "relu"),
        ("vaultgemma", "hidden_act", "gelu_pytorch_tanh", "relu"),
        ("ernie4_5", "compression_ratio", 1.0, 2.0),
        ("ernie4_5_moe", "use_rmsnorm", True, "layer"),
    ],
)
def test_keys_of_published_files_that_take_one_value(name, key, value, other):
    architecture = registry.get(name)
    sizes = architecture.tiny.chat_model_config()
    assert architecture.config.from_hf({**sizes, key: value}) == architecture.tiny
    with pytest.raises(UnsupportedError, match=f"{key}: got {other}; {name} models are supported with"):
        architecture.config.from_hf({**sizes, key: other})


def test_missing_and_impossible_sizes():
    with pytest.raises(MLCError, match="missing key intermediate_size"):
        LlamaConfig.from_hf({k: v for k, v in LLAMA.items() if k != "intermediate_size"})
    with pytest.raises(MLCError, match="got 3; expected a divisor of num_attention_heads, 4"):
        LlamaConfig.from_hf({**LLAMA, "num_key_value_heads": 3})


@pytest.mark.parametrize(
    ("name", "first"), [("lama", "llama"), ("qwen9", "qwen"), ("mixtral_next", "mixtral"), ("whisper", "afmoe")]
)
def test_unknown_architecture(name: str, first: str):
    """No other model is suggested, as a near name is another architecture; similar names are the first of the list."""
    with pytest.raises(UnsupportedError, match=f"got '{name}', which is not supported; expected one of {first}") as e:
        registry.get(name)
    assert e.value.hint is None
    assert set(e.value.message.split("one of ")[1].split(", ")) == registry.ARCHITECTURES.keys()


def test_gpt2_takes_the_activation_that_it_has():
    raw = {"vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_ctx": 64, "hidden_act": "gelu_new"}
    assert GPT2Config.from_hf(raw).hidden_size == 32
    with pytest.raises(UnsupportedError, match="hidden_act: got silu; gpt2 models are supported with 'gelu_new' only"):
        GPT2Config.from_hf({**raw, "hidden_act": "silu"})


@pytest.mark.parametrize(
    ("model_type", "changes", "message"),
    [
        ("mixtral", {"num_experts_per_tok": 9}, "num_experts_per_tok: got 9; expected at most num_local_experts, 8"),
        ("qwen2_moe", {"num_experts_per_tok": 9}, "num_experts_per_tok: got 9; expected at most num_experts, 8"),
        ("qwen2_moe", {"decoder_sparse_step": 2}, "decoder_sparse_step: got 2; expected 1"),
        ("qwen2_moe", {"mlp_only_layers": [0]}, "mlp_only_layers"),
    ],
)
def test_mixtures_of_experts_that_make_no_sense(model_type, changes, message):
    sizes = {
        "vocab_size": 9,
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    experts = {"num_experts" if model_type == "qwen2_moe" else "num_local_experts": 8}
    with pytest.raises(MLCError, match=message):
        registry.get(model_type).config.from_hf({**sizes, **experts, **changes})


HYBRID = {"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 64}


def test_lfm2_adjusts_the_first_of_two_sizes():
    config = lfm2.Lfm2Config.from_hf({**HYBRID, "block_ff_dim": 6656, "full_attn_idxs": [1]})
    assert (config.intermediate_size, config.layer_types) == (4608, ("conv", "full_attention", "conv"))


def test_a_pattern_of_letters_gives_the_types_of_layers():
    raw = {**HYBRID, "hybrid_override_pattern": "M*E", "mamba_num_heads": 4, "mamba_head_dim": 6, "n_groups": 2}
    config = nemotron_h.NemotronHConfig.from_hf(raw)
    assert config.types == ("linear_attention", "full_attention", "moe")
    assert [len(kinds) for kinds in config.layer_kinds] == [1, 1, 0]
    assert decoder.places(config) == (((0, 0),), ((1, 0),), ())
    with pytest.raises(MLCError, match="hybrid_override_pattern: got 'M\\*X'; expected letters among M \\* - E"):
        nemotron_h.NemotronHConfig.from_hf({**raw, "hybrid_override_pattern": "M*X"})
    with pytest.raises(MLCError, match="layer_types: got 2 entries; expected 3"):
        nemotron_h.NemotronHConfig.from_hf({**raw, "layers_block_type": ["mamba", "mlp"]})


def test_kimi_linear_reads_the_published_form_of_its_delta_nets():
    sizes = {"kv_lora_rank": 4, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 4}
    experts = {"num_experts": 4, "num_experts_per_token": 2, "moe_intermediate_size": 4, "moe_renormalize": False}
    delta = {"full_attn_layers": [2], "kda_layers": [1, 3], "head_dim": 6, "num_heads": 5, "short_conv_kernel_size": 3}
    raw = {**HYBRID, **sizes, **experts, "model_max_length": 64, "mla_use_nope": True}
    config = kimi_linear.KimiLinearConfig.from_hf({**raw, "linear_attn_config": delta})
    assert config.types == ("linear_attention", "full_attention", "linear_attention")
    assert vars(config.delta_net) == {"key_heads": 5, "heads": 5, "key_size": 6, "value_size": 6, "taps": 3}
    assert (config.context_window_size, config.norm_topk_prob, config.num_experts_per_tok) == (64, False, 2)
    for change, message in (
        ({"full_attn_layers": 2}, "full_attn_layers: got 2; expected a list of integers"),
        ({"gate_lower_bound": -5.0}, "linear_attn_config.gate_lower_bound: kimi_linear models have no such key"),
    ):
        with pytest.raises(MLCError, match=message):
            kimi_linear.KimiLinearConfig.from_hf({**raw, "linear_attn_config": {**delta, **change}})


def test_mamba_2_names_what_does_not_divide_and_takes_steps_without_limits():
    raw = {**HYBRID, "layer_types": ["mamba"] * 3, "mamba_n_heads": 4, "mamba_d_state": 6}
    config = granite_hybrid.GraniteHybridConfig.from_hf({**raw, "time_step_limit": [0.0, {"__float__": "Infinity"}]})
    assert (config.mamba_sizes.head_dim, config.time_step_limit) == (4, None)
    assert granite_hybrid.GraniteHybridConfig.from_hf({**raw, "time_step_limit": [0.1, 2]}).time_step_limit == (0.1, 2)
    for change, message in (
        ({"mamba_d_head": 7}, "mamba_d_head: got '7' for 4 heads; expected that heads have 16 channels together"),
        ({"mamba_n_groups": 3}, "mamba_n_groups: got 3; expected a divisor of 4 heads"),
        ({"time_step_limit": ["fast"]}, "time_step_limit: got .* expected two numbers"),
        ({"layer_types": ["rwkv"] * 3}, "layer_types: got 'rwkv'; expected full_attention or linear_attention"),
    ):
        with pytest.raises(MLCError, match=message):
            granite_hybrid.GraniteHybridConfig.from_hf({**raw, **change})


@pytest.mark.parametrize("name", registry.ARCHITECTURES)
def test_architectures_have_the_names_by_which_they_are_found(name: str):
    assert registry.get(name).name == name


def test_an_architecture_is_imported_when_it_is_looked_up():
    code = "import sys; from model_zoo import registry; registry.get('qwen3'); print('model_zoo.mamba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
