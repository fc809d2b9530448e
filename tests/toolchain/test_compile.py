"""The metadata that `compile` writes into a library, and its overrides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlc_cli.__main__ import main
from mlc_errors import UsageError
from mlc_evaluation.step_costs import step_cost
from mlc_runtime.metadata import read_metadata
from mlc_toolchain import compile
from mlc_toolchain.compile import CompileOptions, CompileReport, compile_model
from mlc_toolchain.model_metadata import SAME
from model_zoo import registry
from model_zoo.architecture import Architecture
from tests.e2e import toy_caches
from tests.e2e.toy_models import ENCODER
from tests.runtime.test_native import LLAMA, write_config


def test_metadata_of_a_model_with_a_window(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_config(tmp_path)
    config = json.loads((tmp_path / "mlc-chat-config.json").read_text())
    config |= {"model_type": "mistral", "model_config": {**LLAMA, "tie_word_embeddings": False}}
    (tmp_path / "mlc-chat-config.json").write_text(json.dumps(config))
    overrides = "sliding_window_size=20;attention_sink_size=4;max_batch_size=3"
    report = compile_model(CompileOptions(tmp_path, tmp_path / "lib.so", "cpu", overrides=overrides))
    metadata = read_metadata(tmp_path / "lib.so")
    functions = ["embed", "prefill", "decode", "batch_prefill", "batch_decode", "batch_verify"]
    functions += ["batch_prefill_to_last_hidden_states", "penalize", "sample", "sample_filtered", "logprobs"]
    assert report.functions == functions and set(metadata["functions"]) > set(functions)
    assert {key: metadata[key] for key in metadata if key not in DESCRIBED_ELSEWHERE} == {
        "format": "mlc-lib-3",
        "model_type": "mistral",
        "quantization": "q0f32",
        "task": "chat",
        "vocab_size": 258,
        "active_vocab_size": 258,
        "context_window_size": 64,
        "sliding_window_size": 20,
        "attention_sink_size": 4,
        "prefill_chunk_size": 8,
        "max_batch_size": 3,
        "tensor_parallel_shards": 1,
        "pipeline_parallel_stages": 1,
        "disaggregation": False,
        "kv_state_kind": "kv_cache",
        "image_input": None,
        "decoder_start_token_id": None,
        "kv_bytes_per_token": 640,
        "states": [
            {
                "kind": "paged_kv",
                "prefix": "",
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "head_dim": 20,
                "v_head_dim": 20,
                "page_size": 16,
                "dtype": "float32",
                "sliding_window_size": 20,
                "attention_sink_size": 4,
            }
        ],
    }
    workspace = {name: f["workspace_bytes"] for name, f in metadata["functions"].items()}
    assert metadata["memory_usage"] == workspace
    assert report.workspace_bytes == max(workspace.values()) > workspace["decode"] > 0
    assert report.kv_bytes_per_token == 2 * 2 * (20 + 20) * 4
    assert report.params_bytes > metadata["vocab_size"] * LLAMA["hidden_size"] * 4 * 2
    accounts_for_every_kernel(metadata)
    described_as_the_public_tool_does(tmp_path / "lib.so", metadata, report, capsys)


def accounts_for_every_kernel(metadata: dict) -> None:
    """Products have two operations for each element of their matrices; norms two for each element of x."""
    hidden, inner, rows, vocab = 40, 56, 4 * 20, 258
    matrices = 2 * hidden * (rows + 2 * 2 * 20 + rows + 3 * inner) + hidden * vocab
    decode, prefill = (step_cost(metadata, name, 1, positions=30) for name in ("decode", "prefill"))
    assert decode.operations == prefill.operations == 2 * (matrices + 5 * hidden)
    assert decode.weight_bytes >= 4 * (matrices + 5 * hidden)  # columns are padded to whole tiles
    assert decode.nbytes - step_cost(metadata, "decode", 1).nbytes == 30 * metadata["kv_bytes_per_token"]
    seven = step_cost(metadata, "prefill", 7)
    assert seven.operations == 7 * (prefill.operations - 2 * hidden * vocab) + 2 * hidden * vocab  # one row of logits
    assert seven.weight_bytes == prefill.weight_bytes


def described_as_the_public_tool_does(
    library: Path, metadata: dict, report: CompileReport, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["model_metadata", str(library), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {key: shown[key] for key in shown if key not in ("schema", "params", "kv_cache", "model_task")} == {
        key: metadata[key] for key in (*SAME, "memory_usage")
    }
    assert shown["model_task"] == "chat"
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 20}
    assert shown["kv_cache"] == {"num_hidden_layers": 2, **heads}
    assert shown["params"][0] == {
        "name": "model.embed_tokens.weight",
        "shape": [258, 40],
        "dtype": "float32",
        "preprocs": [],
        "pipeline_stages": [0],
    }
    assert main(["model_metadata", str(library), "--memory-only", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "schema": "model_memory/1",
        "params_bytes": report.params_bytes,
        "workspace_bytes": report.workspace_bytes,
        "kv_bytes_per_token": 640,
        "kv_full_context_bytes": 640 * 64,
    }
    assert main(["model_metadata", str(library)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "sliding window size       20" in lines
    assert ["model.embed_tokens.weight", "float32", "[258,", "40]"] in [line.split() for line in lines]


def test_cache_dtypes_that_do_not_exist(tmp_path: Path):
    write_config(tmp_path)
    expected = "auto, float16, float32, bfloat16, int8, float8_e4m3fn"
    with pytest.raises(UsageError, match=f"--kv-cache-dtype: got 'int4'; expected one of {expected}"):
        compile_model(CompileOptions(tmp_path, tmp_path / "lib.so", "cpu", kv_cache_dtype="int4"))


def test_a_cache_of_codes_is_recorded(tmp_path: Path):
    write_config(tmp_path)
    report = compile_model(CompileOptions(tmp_path, tmp_path / "lib.so", "cpu", kv_cache_dtype="int8"))
    (state,) = read_metadata(tmp_path / "lib.so")["states"]
    assert (state["dtype"], state["scale_dtype"]) == ("int8", "float16")
    assert report.kv_bytes_per_token == 2 * 2 * (20 + 20 + 2 * 2)


@pytest.mark.parametrize(
    ("architecture", "message"),
    [
        (
            toy_caches.ARCHITECTURE,
            "--kv-cache-dtype: dtype of a KV cache of latent attention is 'int8'; expected one of",
        ),
        (ENCODER, "--kv-cache-dtype: toy models have no KV cache"),
    ],
)
def test_caches_that_a_model_cannot_have(
    architecture: Architecture, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write_config(tmp_path)
    monkeypatch.setattr(registry, "ARCHITECTURES", {architecture.tiny.model_type: architecture})
    monkeypatch.setattr(compile, "model_config", lambda *_: architecture.tiny)
    with pytest.raises(UsageError, match=message):
        compile_model(CompileOptions(tmp_path, tmp_path / "lib.so", "cpu", kv_cache_dtype="int8"))


DESCRIBED_ELSEWHERE = {
    *("params", "functions", "memory_usage", "chat_config", "accounting"),
    *("target", "compiler_version", "llvm_version", "opt", "library_sha256"),
}


@pytest.mark.parametrize("key", ["sliding_window_size", "attention_sink_size"])
def test_a_window_for_a_model_without_one_is_refused(tmp_path: Path, key: str):
    write_config(tmp_path)
    with pytest.raises(UsageError, match=f"--overrides: llama models have no {key}"):
        compile_model(CompileOptions(tmp_path, tmp_path / "lib.so", "cpu", overrides=f"{key}=4"))
