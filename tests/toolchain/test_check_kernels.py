"""`check_kernels`: reduced models, their kernels in the simulator, and the report."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mlc_cli.__main__ import main
from mlc_compiler.backends.cuda.machine import Gpu
from mlc_compiler.sim.host_functions import Device, Launched
from mlc_compiler.target import Target
from mlc_toolchain import check_kernels as toolchain
from mlc_toolchain.check_kernels import CheckOptions, CheckReport, FunctionCheck, find_model
from mlc_toolchain.compile import export_with_cache
from mlc_toolchain.kernel_checker import KernelCheck, relative_error
from mlc_toolchain.kernel_resources import KernelResources, occupancy
from mlc_toolchain.kernel_traffic import decode_traffic
from mlc_toolchain.random_inputs import RandomInputs
from mlc_toolchain.small_models import shrink
from model_zoo import llama, modernbert, qwen3_moe
from model_zoo.registry import export_model
from quantization.group import decode
from quantization.schemes import get_scheme

HOPPER = Target("cuda:sm_90a")


@pytest.mark.parametrize("preset", ["llama-3.1-8b-instruct", "gpt2", "qwen2.5-0.5b-instruct", "deepseek-v3"])
def test_small_models_keep_head_size_groups_and_remainders(preset: str):
    config, _ = find_model(preset, None)
    small, changed = shrink(config)
    assert small.head_dim == config.head_dim
    groups = [c.num_attention_heads // c.num_key_value_heads for c in (config, small)]
    assert groups[0] == groups[1]
    assert small.vocab_size % 128 == config.vocab_size % 128
    assert small.num_hidden_layers == 2 and small.hidden_size <= 1024
    assert changed["num_hidden_layers"] == (config.num_hidden_layers, 2)
    assert all(getattr(small, name) == after for name, (_, after) in changed.items())


@pytest.mark.parametrize(("preset", "heads"), [("granite-4.0-h-tiny", 24), ("mamba2-130m", 8)])
def test_small_models_keep_the_channels_of_a_mamba_head(preset: str, heads: int):
    config, _ = find_model(preset, None)
    small, _ = shrink(config)
    assert small.mamba_sizes.head_dim == config.mamba_sizes.head_dim == 64
    assert (small.mamba_n_heads, small.mamba_channels) == (heads, 2 * small.hidden_size)


def test_small_models_keep_a_layer_of_each_type():
    small, changed = shrink(find_model("qwen3.5-0.8b", None)[0])
    assert small.types == ("linear_attention", "full_attention")
    assert changed["num_hidden_layers"] == (24, 2)
    assert (small.linear_num_key_heads, small.linear_num_value_heads) == (2, 2)


def test_models_without_attention_become_small():
    small, changed = shrink(find_model("rwkv7-1.5b-world", None)[0])
    assert changed["num_hidden_layers"] == (24, 2) and changed["hidden_size"] == (2048, 256)
    assert small.sizes.head_size == 64


def test_small_models_have_few_experts_in_the_second_layer():
    small, changed = shrink(find_model("deepseek-v3", None)[0])
    assert changed["n_routed_experts"] == (256, 16) and changed["moe_intermediate_size"] == (2048, 256)
    assert [small.is_sparse(layer) for layer in range(2)] == [False, True]


def test_calls_have_no_more_tokens_than_a_short_chunk_of_a_prompt():
    config = replace(llama.TINY, prefill_chunk_size=256)
    scheme = get_scheme("q0f32")
    exported = export_model(config, scheme)
    func, inputs = exported.mod["batch_prefill"], RandomInputs(exported, scheme)
    assert [inputs.tokens_of_a_call(func, n) for n in (20, 37, 400)] == [20, 37, 256]
    assert inputs.arguments(func, 400)["token_pos"].shape == (256,)


def test_small_encoders_and_their_inputs():
    config = replace(modernbert.TINY, context_window_size=8192, prefill_chunk_size=8192)
    small, _ = shrink(config)
    assert small.context_window_size == small.prefill_chunk_size == 512
    scheme = get_scheme("q0f32")
    exported = export_model(small, scheme)
    inputs = RandomInputs(exported, scheme).arguments(exported.mod["encode"])
    assert (inputs["token_pos"] < inputs["lengths"][inputs["token_seq"]]).all()


@pytest.mark.parametrize("scheme", ["q3f16_1", "q4f16_1", "q8f16_1"])
def test_random_quantized_weights_have_a_mean_of_zero(scheme: str):
    inputs = RandomInputs(export_model(llama.TINY, get_scheme(scheme), "float16"), get_scheme(scheme))
    names = [p.name for p in inputs.exported.params]
    stored = dict(zip(names, inputs.weights, strict=True))
    parts = {kind: stored[f"model.layers.0.self_attn.qkv_proj.{kind}"] for kind in ("q_weight", "q_scale")}
    decoded = decode(parts, get_scheme(scheme), llama.TINY.hidden_size).astype(np.float64)
    assert abs(decoded.mean()) < 4 * decoded.std() / decoded.size**0.5
    assert decoded.std() * llama.TINY.hidden_size**0.5 == pytest.approx(1, rel=0.25)


@pytest.mark.parametrize(
    ("registers", "shared", "threads", "expected"),
    [
        (32, 0, 256, 1.0),
        (128, 0, 256, 0.25),  # 65536 registers hold 2 blocks
        (33, 0, 1024, 0.5),  # registers are allocated by 8 for each thread
        (32, 100 << 10, 256, 0.25),  # shared memory for 2 blocks
        (16, 0, 32, 0.5),  # 32 blocks
    ],
)
def test_occupancy(registers: int, shared: int, threads: int, expected: float):
    assert occupancy(registers, shared, (threads, 1, 1), Gpu.of(HOPPER)) == expected


def test_relative_error():
    expected = np.array([4.0, -8.0, np.inf], np.float32)
    assert relative_error(expected.copy(), expected) == 0
    assert relative_error(np.array([4.0, -7.0, np.inf], np.float32), expected) == 0.125
    assert relative_error(np.array([np.nan, -8.0, np.inf], np.float32), expected) == float("inf")
    assert relative_error(np.array([1, 2]), np.array([1, 3])) == 1


def test_kernels_of_a_model(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    simulated, run = Counter[str](), Device.run
    monkeypatch.setattr(Device, "run", lambda self, func, *args: _counted(simulated, run(self, func, *args)))
    assert main(["check_kernels", "gpt2", "--device", "cuda:sm_90a", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {k["kernel"]: k["problem"] for k in report["kernels"] if k["problem"]} == {}
    left = [k["kernel"] for k in report["kernels"] if not k["launches"]]
    assert len(left) <= 2 and all("linear" in name for name in left)  # for more tiles than a small model has
    names = {f["function"] for f in report["functions"]}
    of_decoding = {"embed", "prefill", "decode", "batch_prefill", "batch_decode", "batch_verify"}
    assert names >= of_decoding | {"sample", "sample_filtered", "logprobs"}
    assert max(f["error"] for f in report["functions"]) < toolchain.MODEL_TOLERANCE
    products = [k for k in report["kernels"] if "linear" in k["kernel"] and k["launches"]]
    assert all(k["resources"]["stack_bytes"] == 0 and k["counts"]["global_bytes_read"] for k in products)
    norm = next(k for k in report["kernels"] if k["kernel"] == "layer_norm_kernel")
    tokens = {37, 400, 20, 3}  # of prefill and verification, and of a batch of three sequences
    assert simulated["layer_norm_kernel"] == len(tokens) < sum(norm["launches"].values())  # equal layers once


def _counted(counter: Counter[str], launches: list[Launched]) -> list[Launched]:
    counter.update(launched.kernel for launched in launches)
    return launches


def test_a_fault_is_reported_and_the_status_is_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    kernel = KernelCheck("product", "linear", KernelResources(40, 0, 1024, 0.5), Counter({"decode": 2}))
    faulty = replace(kernel, kernel="sum", launches=Counter(), problem="data race at shared address 0x40")
    report = CheckReport("cuda", {"vocab_size": (32000, 256)}, [kernel, faulty], [FunctionCheck("decode", 2, 1e-4)])
    received: list[CheckOptions] = []
    monkeypatch.setattr(toolchain, "check_kernels", lambda options, progress: received.append(options) or report)
    assert main(["check_kernels", "some-model", "--device", "cuda:sm_90a", "--kv-cache-dtype", "int8"]) == 1
    assert received == [CheckOptions("some-model", "cuda:sm_90a", None, "int8")]
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "made smaller: vocab_size 32000 to 256"
    assert lines[3].split()[:6] == ["product", "decode:2", "40", "1024", "0", "0.50"]
    assert lines[3].endswith("ok") and lines[4].endswith("data race at shared address 0x40")


def test_random_caches_of_codes():
    exported = export_with_cache(llama.ARCHITECTURE.tiny, get_scheme("q0f16"), "float16", "int8")
    arguments = RandomInputs(exported, get_scheme("q0f16")).arguments(exported.mod["decode"])
    for name in ("k_pages", "v_pages"):
        codes = arguments[name]
        assert codes.dtype == np.int8 and codes.min() >= -127 and 30 < codes.std() < 50
    assert all(arguments[name].min() > 0 for name in ("k_scales", "v_scales"))


def test_models_that_do_not_exist_and_targets_without_ptx(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["check_kernels", str(tmp_path / "none"), "--device", "cuda:sm_90a"]) == 2
    assert main(["check_kernels", "gpt2", "--device", "cpu"]) == 2
    assert "use --device cuda:sm_90a" in capsys.readouterr().err


@pytest.mark.parametrize(("model", "instructions"), [("tinyllama-1.1b-chat", 115), ("llama-3.1-8b-instruct", 95)])
def test_traffic_of_decode_kernels(model: str, instructions: int):
    """Bounds of what kernels do now, to be lowered with faster ones."""
    config, scheme = find_model(model, "q4f16_1")
    traffic = decode_traffic(config, scheme, HOPPER)
    assert len(traffic) == 5
    assert all(1 <= t.fetched_per_weight_byte <= 1.03 for t in traffic)
    assert all(0.6 < t.prefetched_per_weight_byte < 1.03 for t in traffic)  # half of the second-level cache at most
    assert all(t.conflicts == 0 and t.instructions <= instructions and t.simulated <= 4 for t in traffic)


def test_a_token_reads_the_experts_that_are_chosen_for_it_alone():
    sizes = {"hidden_size": 256, "moe_intermediate_size": 128, "num_experts": 16, "num_experts_per_tok": 2}
    traffic = decode_traffic(replace(qwen3_moe.TINY, **sizes), get_scheme("q4f16_1"), HOPPER)
    assert [t.fetched_per_weight_byte for t in traffic if "expert_linear" in t.kernel] == [2 / 16, 2 / 16]


def test_latent_attention_reads_the_matrices_of_all_heads_once():
    config, scheme = find_model("deepseek-v2-lite-chat", "q4f16_1")
    traffic = decode_traffic(config, scheme, HOPPER)
    assert [t.fetched_per_weight_byte for t in traffic if "expert_linear" in t.kernel] == [1, 1]
