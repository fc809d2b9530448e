"""Activation statistics against those of torch, and conversions that use them."""

import json
import struct

import gguf
import numpy as np
import pytest
import torch

from mlc_errors import MLCError, UsageError
from mlc_toolchain import calibrated_conversion
from mlc_toolchain import calibration as calibration_module
from mlc_toolchain.calibrated_conversion import most_tokens
from mlc_toolchain.calibrated_weights import Calibration, encode_calibrated
from mlc_toolchain.calibration import CalibratedModel, calibration_ids, can_calibrate, small_chunks
from mlc_toolchain.convert_weight import ConvertOptions, calibrated, convert_weight, plan_conversion
from mlc_toolchain.imatrix import read_imatrix
from mlc_toolchain.source import resolve_source
from model_zoo import registry
from model_zoo.weight_expr import as_expr
from model_zoo.weight_map import Production
from quantization.group import decode
from quantization.rewrite import WeightFormat
from quantization.schemes import SCHEMES
from tests.e2e.checkpoints import random_model, save_checkpoint
from tests.toolchain.test_convert_weight import tensors_of

TEXT = "Each of the layers sees these bytes. " * 30
LAYER = "model.layers.1"
INPUTS = {  # of the first of several matrices that are stored together
    f"{LAYER}.self_attn.qkv_proj.weight": f"{LAYER}.self_attn.q_proj",
    f"{LAYER}.self_attn.o_proj.weight": f"{LAYER}.self_attn.o_proj",
    f"{LAYER}.mlp.gate_up_proj.weight": f"{LAYER}.mlp.gate_proj",
    f"{LAYER}.mlp.down_proj.weight": f"{LAYER}.mlp.down_proj",
    "lm_head.weight": "lm_head",
}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibrated")
    save_checkpoint(random_model("llama-odd-llama3"), folder / "hf")
    (folder / "text").write_text(TEXT)
    return folder


def options(source, output, **more):
    return ConvertOptions(str(source / "hf"), **{"quantization": "q4f16_nl", "output": output, **more})


@pytest.fixture(scope="module")
def calibration(source):
    chosen = options(source, source / "out", calibration=str(source / "text"), method="gptq")
    with calibrated(plan_conversion(chosen), chosen) as conversion:
        yield conversion.calibration


@pytest.fixture(scope="module")
def seen(source, calibration):
    """The inputs of torch's layers, float32 [tokens, K] by name."""
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(source / "hf", dtype=torch.float32)
    ids = Tokenizer.from_file(str(source / "hf" / "tokenizer.json")).encode(TEXT, add_special_tokens=False).ids
    found = {}
    for name in INPUTS.values():
        model.get_submodule(name).register_forward_pre_hook(
            lambda _, arguments, name=name: found.setdefault(name, []).append(arguments[0][0].numpy())
        )
    with torch.inference_mode():
        for start in range(0, calibration.source["tokens"], 512):
            model(torch.tensor([ids[start : start + 512]]))
    return {name: np.concatenate(rows) for name, rows in found.items()}


def test_statistics_are_near_those_of_the_float32_model(calibration, seen):
    """They come from weights of 8 bits."""
    assert calibration.source["tokens"] == 1024
    for name, layer in INPUTS.items():
        x = seen[layer]
        for got, expected in ((calibration.squares[name], np.square(x).mean(0)), (calibration.products[name], x.T @ x)):
            assert np.linalg.norm(got - expected) < 0.05 * np.linalg.norm(expected), name


def test_results_are_nearer_to_those_of_the_weights(source, seen, tmp_path):
    """Of the projection down, without calibration, with scale search and with error feedback."""
    x, scheme = seen[f"{LAYER}.mlp.down_proj"], SCHEMES["q4f16_nl"]
    name, text = f"{LAYER}.mlp.down_proj", str(source / "text")
    exact = tensors_of_conversion(options(source, tmp_path / "exact", quantization="q0f32"))[f"{name}.weight"]
    errors = []
    for number, more in enumerate(({}, {"calibration": text}, {"calibration": text, "method": "gptq"})):
        made = tensors_of_conversion(options(source, tmp_path / str(number), **more))
        weight = decode({kind: made[f"{name}.{kind}"] for kind in ("q_weight", "q_scale")}, scheme, x.shape[1])
        errors.append(np.square(x @ (weight - exact).T).sum())
    assert errors[1] < 0.95 * errors[0]
    assert errors[2] < 0.7 * errors[1]
    index = json.loads((tmp_path / "1" / "tensor-cache.json").read_text())
    assert index["metadata"]["Calibration"].keys() == {"kind", "tokens", "sha256_of_ids"}
    assert list(tmp_path.glob(".mlc-calibration-*")) == []


FLOAT8 = "e4m3_e4m3_f16_max_calibrate"


def test_scales_of_float8_inputs_are_of_the_largest_that_torch_sees(source, seen, tmp_path):
    made = tensors_of_conversion(options(source, tmp_path / "a", quantization=FLOAT8, calibration=str(source / "text")))
    for name, layer in INPUTS.items():
        if name != "lm_head.weight":
            expected = np.float16(np.float16(np.abs(seen[layer]).max()) / np.float16(448))
            scale = made[f"{name.removesuffix('weight')}q_calibration_scale"]
            np.testing.assert_allclose(scale, [expected], rtol=1e-2, err_msg=name)
    plain = tensors_of_conversion(options(source, tmp_path / "b", quantization="e4m3_e4m3_f16"))
    assert made.keys() == plain.keys()
    for name in plain:
        if not name.endswith("q_calibration_scale"):
            assert made[name].tobytes() == plain[name].tobytes(), name


def test_a_layer_whose_inputs_were_not_measured():
    production = Production("a.weight", (2, 32), as_expr("a.weight"))
    form, blocks = WeightFormat(SCHEMES[FLOAT8], "NK"), lambda: [np.ones((2, 32), np.float16)]
    with pytest.raises(MLCError, match="a.weight has no scale for its inputs: the layer did not run"):
        encode_calibrated(blocks, production, form, Calibration({}, {}, {}))
    with pytest.raises(MLCError, match="inputs reach 3e[+]07 on the text"):
        encode_calibrated(blocks, production, form, Calibration({}, {}, {}, {"a.weight": np.float32(3e7)}))


def tensors_of_conversion(chosen):
    convert_weight(chosen)
    return tensors_of(chosen.output)


REFUSALS = [
    ({"method": "gptq"}, "gptq takes statistics of activations"),
    ({"method": "awq"}, "awq takes statistics of activations"),
    ({"method": "omniquant", "calibration": "auto"}, "got 'omniquant'; expected one of search, awq, gptq"),
    ({"quantization": "q0f16", "calibration": "auto"}, "q0f16 has nothing to choose; expected one of .*q4f16_1"),
    ({"calibration": "auto", "imatrix": "x"}, "expected one of them"),
    ({"bits": 5.0}, "measured on a text"),
    ({"bits": 5.0, "calibration": "auto", "quantization": "q4f16_m"}, "q4f16_m cannot be the base"),
    ({"quantization": "e4m3_e4m3_f16_max_calibrate"}, "takes the largest inputs of layers on a text"),
    ({"quantization": "e4m3_e4m3_f16_max_calibrate", "imatrix": "x"}, "takes no --imatrix"),
]


@pytest.mark.parametrize(("more", "message"), REFUSALS, ids=[message for _, message in REFUSALS])
def test_options_that_contradict_each_other(source, tmp_path, more, message):
    with pytest.raises(UsageError, match=message):
        convert_weight(options(source, tmp_path / "out", **more))


def test_a_text_that_is_too_short(source, tmp_path):
    (tmp_path / "short").write_text("Too short.")
    with pytest.raises(MLCError, match="got 10 tokens; expected at least 512"):
        convert_weight(options(source, tmp_path / "out", calibration=str(tmp_path / "short")))


@pytest.mark.parametrize(
    ("scheme", "more", "tokens"),
    [
        ("q4f16_nl", {}, 2048),
        ("q4f16_nl", {"method": "gptq"}, 8192),
        ("q4f16_nl", {"bits": 5.0}, 8192),
        ("e4m3_e4m3_f16_max_calibrate", {}, 8192),
    ],
)
def test_means_of_squares_need_fewer_tokens_than_other_statistics(source, tmp_path, scheme, more, tokens):
    assert most_tokens(options(source, tmp_path, **more), SCHEMES[scheme]) == tokens


def test_texts_that_the_model_writes_are_read_too(source, tmp_path, monkeypatch):
    monkeypatch.setattr(calibrated_conversion, "MANY_TOKENS", 2560)
    monkeypatch.setattr(calibrated_conversion, "OWN_TEXTS", 2)
    chosen = options(source, tmp_path / "out", calibration="auto", method="gptq")
    with calibrated(plan_conversion(chosen), chosen) as conversion:
        recorded = conversion.calibration.source
    documentation, where = calibration_ids("auto", resolve_source(str(source / "hf")), 2560)
    assert where == "Python's language reference"
    assert recorded["tokens"] == len(documentation) + 2 * 512 == 3584


def test_no_more_than_the_given_number_of_tokens_is_read(source):
    ids, where = calibration_ids(str(source / "text"), resolve_source(str(source / "hf")), 512)
    assert (len(ids), where) == (512, str(source / "text"))


# -- importance matrices -----------------------------------------------------------------------------------------------


def write_gguf(path, means, calls):
    writer = gguf.GGUFWriter(path, "")
    writer.add_type("imatrix")
    for name, mean in means.items():
        writer.add_tensor(f"{name}.in_sum2", (mean * calls)[None])
        writer.add_tensor(f"{name}.counts", np.array([[calls]], np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_legacy(path, means, calls):
    data = struct.pack("<i", len(means))
    for name, mean in means.items():
        data += struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", calls, len(mean))
        data += (mean * calls).astype("<f4").tobytes()
    path.write_bytes(data + struct.pack("<ii", calls, 4) + b"text")


@pytest.mark.parametrize("write", [write_gguf, write_legacy])
def test_importance_matrices_give_the_same_weights_as_the_text(source, calibration, tmp_path, write):
    means = {
        f"blk.1.{stem}.weight": calibration.squares[f"{LAYER}.{name}.weight"]
        for stem, name in (("attn_q", "self_attn.qkv_proj"), ("ffn_down", "mlp.down_proj"))
    }
    write(tmp_path / "imatrix", means, 4)
    productions = plan_conversion(options(source, tmp_path / "out")).plan.productions
    read = read_imatrix(tmp_path / "imatrix", productions, "llama")
    assert read.squares.keys() == {f"{LAYER}.self_attn.qkv_proj.weight", f"{LAYER}.mlp.down_proj.weight"}
    for name, mean in read.squares.items():
        np.testing.assert_allclose(mean, calibration.squares[name], rtol=1e-6)
    made = tensors_of_conversion(options(source, tmp_path / "out", imatrix=tmp_path / "imatrix"))
    plain = tensors_of_conversion(options(source, tmp_path / "plain"))
    changed = {name for name in made if made[name].tobytes() != plain[name].tobytes()}
    assert changed and all("layers.1" in name for name in changed)


def test_files_that_are_no_importance_matrix_of_the_model(source, tmp_path):
    productions = plan_conversion(options(source, tmp_path / "out")).plan.productions
    write_legacy(tmp_path / "other", {"blk.0.ffn_down.weight": np.ones(7, np.float32)}, 1)
    with pytest.raises(MLCError, match="has 93 inputs; blk.0.ffn_down.weight has 7"):
        read_imatrix(tmp_path / "other", productions, "llama")
    write_legacy(tmp_path / "none", {"blk.9.ffn_down.weight": np.ones(7, np.float32)}, 1)
    with pytest.raises(MLCError, match="none of the model's tensors"):
        read_imatrix(tmp_path / "none", productions, "llama")
    write_legacy(tmp_path / "nan", {"blk.0.ffn_down.weight": np.full(93, np.nan, np.float32)}, 1)
    with pytest.raises(MLCError, match="no mean squares"):
        read_imatrix(tmp_path / "nan", productions, "llama")
    (tmp_path / "damaged").write_bytes(b"\x05\x00\x00\x00abc")
    with pytest.raises(MLCError, match="neither GGUF nor an older importance matrix"):
        read_imatrix(tmp_path / "damaged", productions, "llama")


@pytest.mark.parametrize("name", ["llava", "jamba", "deepseek_v2"])
def test_layers_of_every_kind_of_decoder_are_observed(name, tmp_path, monkeypatch):
    architecture = registry.get(name)
    assert can_calibrate(architecture, architecture.tiny)
    built = []
    monkeypatch.setattr(calibration_module, "build_library", lambda mod, *_, **__: built.append(mod) or 1 / 0)
    model = CalibratedModel(architecture, small_chunks(architecture.tiny), tmp_path)
    with pytest.raises(ZeroDivisionError):
        model.calibrate([1] * 512, feedback=False)
    sums = [info for info in built[0]["calibrate"].ret_info.fields if info.ndim == 1]
    assert len(sums) >= len(model.names) - 1  # a token table that is no head multiplies nothing
    with pytest.raises(ZeroDivisionError):
        model.own_text([1])
    assert "batch_decode" in built[1]


@pytest.mark.parametrize("name", ["bert", "t5", "eagle", "medusa", "mimo_mtp"])
def test_models_that_do_not_continue_text_are_not_calibrated(name):
    architecture = registry.get(name)
    assert not can_calibrate(architecture, architecture.tiny)
