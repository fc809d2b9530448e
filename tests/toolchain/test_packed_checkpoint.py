import json

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from safetensors.torch import save_file

from mlc_errors import MLCError, UnsupportedError, UsageError
from mlc_runtime import LLM
from mlc_toolchain.compile import CompileOptions, compile_model
from mlc_toolchain.convert_weight import ConvertOptions, convert_weight
from mlc_toolchain.gen_config import GenConfigOptions, gen_config
from mlc_toolchain.packed_checkpoint import open_packed
from mlc_toolchain.packed_settings import unquantized
from mlc_toolchain.readers.base import CheckpointError
from mlc_toolchain.readers.safetensors import SafetensorsReader
from mlc_toolchain.source import resolve_source
from quantization.group import decode
from quantization.schemes import SCHEMES
from tests.toolchain import packing
from tests.toolchain.packing import as_torch
from tests.toolchain.test_convert_weight import tensors_of

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True}


def gptq(bits=4, group=32, layout="gptq"):
    return {"quant_method": "gptq", "bits": bits, "group_size": group, "checkpoint_format": layout}


def opened(folder, tensors, settings):
    safetensors.numpy.save_file({"norm.weight": np.ones(4, np.float16), **tensors}, folder / "model.safetensors")
    return open_packed(
        SafetensorsReader(folder / "model.safetensors"), {"quantization_config": settings}, "config.json"
    )


def test_awq_layers_are_read_as_their_weights(tmp_path):
    parts = packing.random_codes(np.random.default_rng(0), 16, 64, 32, 4)
    reader = opened(tmp_path, packing.awq_tensors("layer", *parts), AWQ)
    assert sorted(reader.names()) == ["layer.weight", "norm.weight"]
    assert reader.info("layer.weight").shape == (16, 64)
    assert reader.info("layer.weight").nbytes == 16 * 64 // 2 + 2 * 16 // 2 + 2 * 16 * 2
    np.testing.assert_array_equal(reader.read("layer.weight"), packing.values(*parts, np.arange(64) // 32))
    assert reader.read("norm.weight").tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("layout", ["gptq", "gptq_v2"])
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("ordered", [True, False])
def test_gptq_layers_are_read_as_their_weights(bits, layout, ordered, tmp_path):
    rng = np.random.default_rng(bits)
    parts = packing.random_codes(rng, 32, 64, 32, bits)
    index = np.arange(64) // 32 if ordered else rng.permutation(np.arange(64) // 32)
    tensors = packing.gptq_tensors("layer", *parts, bits, index, offset=1 if layout == "gptq" else 0)
    reader = opened(tmp_path, tensors, gptq(bits, layout=layout))
    assert sorted(reader.names()) == ["layer.weight", "norm.weight"]
    np.testing.assert_array_equal(reader.read("layer.weight"), packing.values(*parts, index))
    levels = reader.group_levels("layer.weight")
    assert (levels is None) == (not ordered)
    if levels is not None:
        np.testing.assert_array_equal(levels.values(), reader.read("layer.weight"))


def test_one_group_for_all_inputs(tmp_path):
    parts = packing.random_codes(np.random.default_rng(0), 8, 64, 64, 4)
    reader = opened(tmp_path, packing.gptq_tensors("layer", *parts, 4), gptq(group=-1))
    np.testing.assert_array_equal(reader.read("layer.weight"), packing.values(*parts, np.zeros(64, int)))


def test_fp8_blocks_are_scaled(tmp_path):
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((5, 7)).astype(ml_dtypes.float8_e4m3fn)
    scales = rng.uniform(0.5, 2, (2, 3)).astype(np.float32)
    header = {
        "a.weight": {"dtype": "F8_E4M3", "shape": [5, 7], "data_offsets": [0, 35]},
        "a.weight_scale_inv": {"dtype": "F32", "shape": [2, 3], "data_offsets": [35, 59]},
        "b.weight": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [59, 60]},
    }
    text = json.dumps(header).encode()
    data = weight.tobytes() + scales.tobytes() + bytes([0x38])
    (tmp_path / "a.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    settings = {"quant_method": "fp8", "weight_block_size": [4, 3]}
    reader = open_packed(
        SafetensorsReader(tmp_path / "a.safetensors"), {"quantization_config": settings}, "config.json"
    )
    assert reader.names() == ["a.weight", "b.weight"]
    expected = weight.astype(np.float32) * np.repeat(np.repeat(scales, 4, 0), 3, 1)[:5, :7]
    np.testing.assert_array_equal(reader.read("a.weight"), expected)
    assert reader.read("b.weight").astype(np.float32) == [1.0]


def test_fp8_with_one_scale(tmp_path):
    """Published files call it weight_scale_inv or weight_scale; it multiplies in both."""
    codes = np.random.default_rng(0).standard_normal((130, 5)).astype(ml_dtypes.float8_e4m3fn)
    scales = {"a.weight_scale_inv": np.float32(0.5).reshape(()), "b.weight_scale": np.full(1, 0.25, np.float32)}
    stored = {"a.weight": codes, "b.weight": codes.copy(), **scales, "b.input_scale": np.ones(1, np.float32)}
    save_file({name: as_torch(array) for name, array in stored.items()}, tmp_path / "model.safetensors")
    config = {"quantization_config": {"quant_method": "fp8", "activation_scheme": "static"}}
    reader = open_packed(SafetensorsReader(tmp_path / "model.safetensors"), config, "config.json")
    assert sorted(reader.names()) == ["a.weight", "b.weight"]
    for name, scale in (("a.weight", 0.5), ("b.weight", 0.25)):
        np.testing.assert_array_equal(reader.read(name), codes.astype(np.float32) * np.float32(scale))
        assert reader.stored_form(name).read("weight_scale_inv").tolist() == [[scale], [scale]]
    assert [reader.stored_form(name).has_input_scales for name in ("a.weight", "b.weight")] == [False, True]


OWN_FILES = {
    "quantize_config.json": ({"bits": 5, "group_size": 32}, "bits: got 5"),
    "quant_config.json": ({"w_bit": 4, "q_group_size": 128, "version": "GEMV"}, "AWQ version 'GEMV'"),
    "hf_quant_config.json": ({"quantization": {"quant_algo": "W4A8_AWQ"}}, "quant_algo: got 'W4A8_AWQ'"),
    "quantization_config.json": ({"quant_method": "auto-round", "bits": 4}, "quant_method: got 'auto-round'"),
}


@pytest.mark.parametrize("name", OWN_FILES)
def test_settings_in_a_file_of_their_own_are_refused_by_its_name(name, tmp_path):
    settings, message = OWN_FILES[name]
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).write_text(json.dumps(settings))
    with pytest.raises(UnsupportedError, match=message) as caught:
        resolve_source(str(tmp_path)).config()
    assert caught.value.where == (str(tmp_path / name),)


@pytest.mark.parametrize(("name", "settings"), [("quant_config.json", AWQ), ("quantize_config.json", gptq())])
def test_settings_in_a_file_of_their_own_are_those_of_config_json(name, settings, tmp_path):
    packed_llama(tmp_path / "source", settings, zero=8)
    convert_weight(ConvertOptions(str(tmp_path / "source"), "q4f16_1", tmp_path / "out"))
    config = json.loads((tmp_path / "source" / "config.json").read_text())
    own = config.pop("quantization_config")
    (tmp_path / "source" / "config.json").write_text(json.dumps(config))
    (tmp_path / "source" / name).write_text(json.dumps({k: v for k, v in own.items() if k != "quant_method"}))
    convert_weight(ConvertOptions(str(tmp_path / "source"), "q4f16_1", tmp_path / "again"))
    assert (tmp_path / "again/params_shard_0.bin").read_bytes() == (tmp_path / "out/params_shard_0.bin").read_bytes()


@pytest.mark.parametrize(
    "settings",
    [
        {"quant_method": "bitsandbytes"},
        {"quant_method": ["awq"]},
        "awq",
        {**AWQ, "version": "gemv"},
        {**AWQ, "bits": 8},
        {**AWQ, "group_size": "128"},
        {**gptq(), "bits": 5},
        {**gptq(), "group_size": 0},
        gptq(layout="marlin"),
        {**gptq(), "is_marlin_format": True},
        {**gptq(), "dynamic": {"-:.*head": {}, "+:.*down": {"bits": 8}}},
        {**gptq(), "dynamic": 5},
        {"quant_method": "fp8", "weight_block_size": [0, 128]},
        {"quant_method": "fp8", "activation_scheme": "other"},
    ],
)
def test_other_kinds_are_unsupported_by_their_configuration(settings):
    with pytest.raises(UnsupportedError) as caught:
        unquantized({"quantization_config": settings}, "config.json")
    assert caught.value.where == ("config.json",)


@pytest.mark.parametrize("settings", [AWQ, {**gptq(), "dynamic": {"-:.*head": {}}}, {"quant_method": "mxfp4"}])
def test_supported_kinds_are_left_out_of_the_configuration(settings):
    assert unquantized({"hidden_size": 3, "quantization_config": settings}, "config.json") == {"hidden_size": 3}


BROKEN = {
    "no scales": lambda t: t.pop("layer.scales"),
    "scales of another shape": lambda t: t.update({"layer.scales": t["layer.scales"][:1]}),
    "zeros of another shape": lambda t: t.update({"layer.qzeros": t["layer.qzeros"][:1]}),
    "codes that are no words": lambda t: t.update({"layer.qweight": t["layer.qweight"].astype(np.float32)}),
    "codes in one axis": lambda t: t.update({"layer.qweight": t["layer.qweight"].ravel()}),
    "a weight beside the codes": lambda t: t.update({"layer.weight": np.ones((16, 64), np.float16)}),
    "g_idx too short": lambda t: t.update({"layer.g_idx": np.zeros(3, np.int32)}),
    "g_idx out of range": lambda t: t.update({"layer.g_idx": np.full(64, 2, np.int32)}),
    "g_idx negative": lambda t: t.update({"layer.g_idx": np.full(64, -1, np.int32)}),
}


@pytest.mark.parametrize("case", BROKEN)
def test_parts_that_do_not_fit_are_an_error(case, tmp_path):
    parts = packing.random_codes(np.random.default_rng(0), 16, 64, 32, 4)
    tensors = packing.gptq_tensors("layer", *parts, 4)
    BROKEN[case](tensors)
    with pytest.raises(CheckpointError, match="layer: ") as caught:
        opened(tmp_path, tensors, gptq())
    assert caught.value.where == (str(tmp_path / "model.safetensors"),)


HIDDEN, INNER = 64, 96
LAYERS = {
    "self_attn.q_proj": (64, 64), "self_attn.k_proj": (32, 64), "self_attn.v_proj": (32, 64),
    "self_attn.o_proj": (64, 64), "mlp.gate_proj": (96, 64), "mlp.up_proj": (96, 64), "mlp.down_proj": (64, 96),
}  # fmt: skip


def packed_llama(folder, settings, zero):
    """A one-layer Llama whose linear layers are packed; returns the dequantized values of each."""
    rng = np.random.default_rng(0)
    tensors = {"model.embed_tokens.weight": rng.standard_normal((40, HIDDEN)).astype(np.float16)}
    tensors |= {"model.norm.weight": np.ones(HIDDEN, np.float16)}
    expected = {}
    for name in ("input_layernorm", "post_attention_layernorm"):
        tensors[f"model.layers.0.{name}.weight"] = np.ones(HIDDEN, np.float16)
    for layer, (outputs, inputs) in LAYERS.items():
        name = f"model.layers.0.{layer}"
        parts = packing.random_codes(rng, outputs, inputs, 32, 4, zero)
        if settings["quant_method"] == "awq":
            tensors |= packing.awq_tensors(name, *parts)
        else:
            tensors |= packing.gptq_tensors(name, *parts, 4)
        expected[layer] = packing.values(*parts, np.arange(inputs) // 32)
    config = {"model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": 1}
    config |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 40, "tie_word_embeddings": True}
    folder.mkdir()
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": settings}))
    return expected


@pytest.mark.parametrize("settings", [AWQ, gptq()], ids=["awq", "gptq"])
@pytest.mark.parametrize("scheme", ["q4f16_1", "q4f32_1", "q8f16_1"])
def test_levels_of_the_checkpoint_are_kept_exactly(scheme, settings, tmp_path):
    expected = packed_llama(tmp_path / "source", settings, zero=8)
    convert_weight(ConvertOptions(str(tmp_path / "source"), scheme, tmp_path / "out"))
    made = tensors_of(tmp_path / "out")
    exact = SCHEMES["q8f32_1" if SCHEMES[scheme].bits == 8 else "q4f32_1"]

    def decoded(name, inputs):
        parts = {kind: made[f"model.layers.0.{name}.{kind}"] for kind in ("q_weight", "q_scale")}
        return decode({**parts, "q_scale": parts["q_scale"].astype(np.float32)}, exact, inputs)

    qkv = np.concatenate([expected[f"self_attn.{p}_proj"] for p in "qkv"])
    np.testing.assert_array_equal(decoded("self_attn.qkv_proj", HIDDEN), qkv)
    np.testing.assert_array_equal(decoded("mlp.down_proj", INNER), expected["mlp.down_proj"])


def test_groups_whose_levels_do_not_fit_are_requantized(tmp_path):
    expected = packed_llama(tmp_path / "source", AWQ, zero=None)
    report = convert_weight(
        ConvertOptions(str(tmp_path / "source"), "q4f16_1", tmp_path / "out", report=tmp_path / "r")
    )
    made = tensors_of(tmp_path / "out")
    parts = {kind: made[f"model.layers.0.mlp.down_proj.{kind}"] for kind in ("q_weight", "q_scale")}
    back = decode(parts, SCHEMES["q4f16_1"], INNER).astype(np.float64)
    error = np.abs(back - expected["mlp.down_proj"]).reshape(HIDDEN, -1, 32).max(axis=-1)
    steps = np.abs(parts["q_scale"].astype(np.float64))
    assert (error <= 0.53 * steps).all()
    assert 0 < report.relative_error < 0.12


def test_a_bad_quantization_config_is_reported_by_the_command(tmp_path):
    packed_llama(tmp_path / "source", {**AWQ, "bits": 4, "group_size": 128}, zero=8)
    with pytest.raises(MLCError, match="groups of 128"):
        convert_weight(ConvertOptions(str(tmp_path / "source"), "q4f16_1", tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_the_method_may_be_named_as_the_source_format(tmp_path):
    packed_llama(tmp_path / "source", AWQ, zero=8)

    def options(source_format):
        return ConvertOptions(str(tmp_path / "source"), "q4f16_1", tmp_path / "out", source_format=source_format)

    convert_weight(options("awq"))
    with pytest.raises(UsageError, match=r"--source-format gptq: the quant_method of config\.json is awq"):
        convert_weight(options("gptq"))


def test_the_model_is_configured_and_compiled(tmp_path):
    packed_llama(tmp_path / "source", AWQ, zero=8)
    convert_weight(ConvertOptions(str(tmp_path / "source"), "q4f16_1", tmp_path / "out"))
    gen_config(GenConfigOptions(str(tmp_path / "source"), "q4f16_1", tmp_path / "out"))
    compile_model(CompileOptions(tmp_path / "out", tmp_path / "out" / "lib.so", "cpu"))
    with LLM(tmp_path / "out") as llm:
        assert llm.logits([1, 2, 3]).std() > 0


def test_methods_that_are_not_read_are_named_by_every_command(tmp_path):
    packed_llama(tmp_path / "source", {**AWQ, "quant_method": "hqq"}, zero=8)
    with pytest.raises(MLCError, match=r"quant_method: got 'hqq'; expected one of awq, gptq, fp8, mxfp4"):
        gen_config(GenConfigOptions(str(tmp_path / "source"), "q4f16_1", tmp_path / "out"))
