"""Observed kernels: their arguments in files, the first NaN, and planted faults located by comparison."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from mlc_cli.__main__ import main
from mlc_compiler.nn import Tensor, op
from mlc_compiler.nn.kv_cache import PagedKVCache
from mlc_errors import UsageError
from mlc_evaluation.comparison import compare_libraries, compare_with_transformers, kernel_results
from mlc_evaluation.debug_chat import write_kernels
from mlc_evaluation.error_plot import error_plot
from mlc_evaluation.kernel_calls import as_view
from mlc_evaluation.observed import ModelFiles
from mlc_evaluation.transformers_model import TransformersModel
from mlc_runtime import LLM
from mlc_runtime.arrays import to_tensor
from mlc_toolchain.compile import CompileOptions, compile_model
from model_zoo.llama import LlamaAttention, LlamaMLP, LlamaModel

NAME = "llama-odd-llama3"
PROMPT = "the quick brown fox"
LAYER = 1


@pytest.fixture(scope="module")
def folder(tiny_folder: Callable[[str, str], Path]) -> Path:
    return tiny_folder(NAME, "q0f32")


@pytest.fixture(scope="module")
def observed(folder: Path) -> Iterator[LLM]:
    with ModelFiles(folder, num_threads=2).open_observed(tensors=True) as llm:
        yield llm


@pytest.fixture(scope="module")
def written(observed: LLM, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int], list[int]]:
    """The folder with the kernels' arguments, the ids of the prompt, and those of the answer."""
    output = tmp_path_factory.mktemp("kernels")
    ids = observed.encode(PROMPT)
    report = write_kernels(observed, ids, 3, output)
    files = [*output.rglob("f*.npz")]
    assert (report.problem, report.phases, report.kernels) == ("", 3, len(files))
    assert report.file_bytes > sum(f.stat().st_size for f in files)
    with pytest.raises(UsageError, match="is not empty"):
        write_kernels(observed, ids, 1, output)
    return output, ids, report.token_ids


def arguments(file: Path) -> list[np.ndarray]:
    data = np.load(file)
    return [data[f"arg_{i}"] for i in range(len(data.files))]


def test_files_have_the_arguments_of_the_kernels(written, folder: Path):
    output, ids, _ = written
    table, tokens, embedding = arguments(output / "prefill" / "f0_take.npz")
    assert tokens.tolist() == ids
    assert np.array_equal(table[tokens], embedding)
    x, weight, normed = arguments(output / "prefill" / "f1_rms_norm.npz")
    assert np.array_equal(x[0], embedding)
    expected = x * weight / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(normed, expected, rtol=1e-5, atol=1e-6)
    (append,) = output.glob("prefill/f4_*.npz")
    assert append.name == "f4_append.npz" and arguments(append)[0].size == 0  # the pages of all sequences


def test_every_step_has_a_folder_with_its_logits(written, folder: Path, opened: Callable[[Path, int], LLM]):
    output, ids, answer = written
    assert sorted(p.name for p in output.iterdir()) == ["decode_1", "decode_2", "prefill"]
    expected = opened(folder, 2).logits([*ids, *answer])[len(ids) - 1 : -1]
    for phase, row in zip(("prefill", "decode_1", "decode_2"), expected, strict=True):
        logits = np.load(output / phase / "logits.npz")["arr_0"]
        np.testing.assert_allclose(logits, row[None], rtol=0, atol=2e-5)
    assert expected.argmax(-1).tolist() == answer


def test_the_first_nan_is_named_with_its_kernel_and_layer(observed: LLM, tmp_path: Path):
    names = [p.name for p in observed.model.spec.params]
    weight = observed.model.params.arrays[names.index("model.layers.1.post_attention_layernorm.weight")]
    shared = as_view(to_tensor(weight))
    before, shared[7] = shared[7], np.nan
    report = write_kernels(observed, [5, 6], 2, tmp_path / "out")
    shared[7] = before
    place = "in prefill, layer 1, prefill kernel 15: rms_norm (prefill/f16_rms_norm.npz)"
    assert report.problem == f"NaN at [0, 0, 7] {place}"


def test_without_a_fault_all_layers_agree(observed: LLM, checkpoint: Callable[[str], Path]):
    reference = TransformersModel(checkpoint(NAME))
    found = compare_with_transformers(observed, reference, observed.encode(PROMPT))
    assert (found.departs, found.tokens) == ("", len(PROMPT))
    assert all(e.agrees for e in found.layers)
    expected = ["model.layers.0", "model.layers.1", "model.norm", "lm_head", "logits"]
    assert [line.split()[0] for line in error_plot(found.layers).splitlines()[-5:]] == expected


# -- planted faults ----------------------------------------------------------------------------------------------------


class OtherRotation(LlamaAttention):
    """A fault: RoPE rotates queries and keys in the opposite direction."""

    def forward(self, x: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        cos, sin = angles = cache.angles()
        cache._angles = cos, op.negative(sin)
        result = super().forward(x, cache, layer)
        cache._angles = angles
        return result


class SwappedGate(LlamaMLP):
    """A fault: the activation is applied to the wrong half."""

    def forward(self, x: Tensor) -> Tensor:
        up, gate = op.split(self.gate_up_proj(x), 2, axis=-1)
        return self.down_proj(self.activation(gate) * up)


def plant(monkeypatch: pytest.MonkeyPatch, change: Callable[[object], None]) -> None:
    """Replace a layer in all models compiled from now on."""
    build = LlamaModel.__init__

    def faulty(self: LlamaModel, config: object) -> None:
        build(self, config)
        change(self.layers[LAYER])

    monkeypatch.setattr(LlamaModel, "__init__", faulty)


def rotate_the_other_way(layer: object) -> None:
    layer.self_attn.__class__ = OtherRotation


def swap_the_gate(layer: object) -> None:
    layer.mlp.__class__ = SwappedGate


@pytest.mark.parametrize(
    ("change", "kernel"),
    [
        (rotate_the_other_way, "append"),
        (swap_the_gate, "fused_split_silu_multiply1"),
    ],
)
def test_a_planted_fault_is_found(
    change, kernel: str, folder: Path, checkpoint: Callable[[str], Path], monkeypatch, capsys
):
    plant(monkeypatch, change)
    reference = f"hf:{checkpoint(NAME)}"
    assert main(["debug_chat", str(folder), "-p", PROMPT, "--compare", reference, "--threads", "2", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["comparison"]
    assert (found["kernel"], found["layer"]) == (kernel, LAYER)
    assert {e["layer"]: e["agrees"] for e in found["layers"] if e["layer"] is not None} == {0: True, 1: False}


def test_two_libraries(observed: LLM, folder: Path, tmp_path: Path, monkeypatch, capsys):
    """O0 has no fused kernels; the same with a fault departs."""
    plant(monkeypatch, swap_the_gate)
    library = tmp_path / "O0.so"
    compile_model(CompileOptions(folder, library, device="cpu", opt="O0"))
    with ModelFiles(folder, library).open_observed(tensors=True) as llm:
        ids = llm.encode(PROMPT)
        plain, fused = kernel_results(llm, ids), kernel_results(observed, ids)
    assert compare_libraries(fused, fused, len(ids), 1e-3).departs == ""
    found = compare_libraries(plain, fused, len(ids), 1e-3)
    assert (found.kernel, found.layer) == ("fused_split_silu_multiply", LAYER)


def test_what_there_is_to_do_has_to_be_said(folder: Path, capsys):
    assert main(["debug_chat", str(folder), "-p", PROMPT]) == 2
    assert "give --debug-dir DIR, --compare hf:PATH, or both" in capsys.readouterr().err
    assert main(["debug_chat", str(folder), "-p", PROMPT, "--compare", "x"]) == 2
    assert "got 'x'; expected hf:PATH" in capsys.readouterr().err
