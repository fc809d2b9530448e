"""``bench --compare``: calls of llama.cpp (a fake llama_cpp records them), and rejected options."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from mlc_errors import MLCError, ResourceError
from mlc_evaluation.benchmark import BenchOptions
from mlc_evaluation.llama_cpp import LlamaCpp

FAKE = """
import atexit, json, os, types
__version__ = "1.2.3"
calls, params = [], types.SimpleNamespace()
llama_backend_init = lambda: None
llama_model_default_params = llama_context_default_params = lambda: params
llama_model_load_from_file = lambda name, _: name if name.endswith(b"model.gguf") else None
llama_init_from_model = lambda model, params: "context"
llama_sampler_init_greedy = lambda: "greedy"
llama_sampler_sample = lambda sampler, context, place: 5
llama_model_get_vocab = lambda model: model
llama_vocab_n_tokens = lambda vocabulary: 50
llama_get_memory = lambda context: context
llama_memory_seq_rm = lambda memory, sequence, begin, end: calls.append(["keep", begin])
llama_batch_get_one = lambda tokens, count: len(tokens)

class llama_token:
    def __mul__(self, count):
        return lambda *tokens: tokens
llama_token = llama_token()

def llama_decode(context, count):
    calls.append(count)
    return 0

@atexit.register
def write():
    with open(os.path.join(os.path.dirname(__file__), "calls.json"), "w") as file:
        json.dump([vars(params), calls], file)
"""
OPTIONS = BenchOptions(prompt_lengths=(7, 300), generate=4, depths=(0, 9), repeat=2)


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter that imports the fake llama_cpp."""
    (tmp_path / "llama_cpp.py").write_text(FAKE)
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    path.chmod(0o755)
    (tmp_path / "model.gguf").touch()
    return path


def test_prompts_and_steps(python: Path, tmp_path: Path):
    peer = LlamaCpp(python, tmp_path / "model.gguf")
    peer.check()
    report = peer.measure(OPTIONS, 3)
    assert report.engine == "llama.cpp (llama-cpp-python 1.2.3)"
    assert [s.tokens for s in report.prefill] == [7, 300] and [s.tokens for s in report.decode] == [0, 9]
    for speed, of_each in [*zip(report.prefill, (7, 300)), *zip(report.decode, (1, 1))]:
        assert speed.tokens_per_second == pytest.approx(of_each / speed.seconds.p50)
    params, calls = json.loads((tmp_path / "calls.json").read_text())
    assert params == {"n_ctx": 512, "n_batch": 512, "n_threads": 3, "n_threads_batch": 3}
    prompts = [["keep", 0], 7] * 3 + [["keep", 0], 300] * 3
    steps = [["keep", 0], *[["keep", 0], 1, 1, 1, 1] * 2, ["keep", 0], 9, *[["keep", 9], 1, 1, 1, 1] * 2]
    assert calls == prompts + steps


def test_what_cannot_be_compared(python: Path, tmp_path: Path):
    with pytest.raises(MLCError, match=r"nosuch\.gguf is no file"):
        LlamaCpp(python, tmp_path / "nosuch.gguf").check()
    with pytest.raises(ResourceError, match="cannot import llama_cpp: ModuleNotFoundError") as error:
        LlamaCpp(Path(sys.executable), tmp_path / "model.gguf").check()
    assert "--compare-python PATH" in error.value.hint
    with pytest.raises(ResourceError, match="nosuch cannot import llama_cpp: No such file or directory"):
        LlamaCpp(tmp_path / "nosuch", tmp_path / "model.gguf").check()
    (tmp_path / "other.gguf").touch()
    with pytest.raises(MLCError, match=r"llama\.cpp reads no model from .*other\.gguf"):
        LlamaCpp(python, tmp_path / "other.gguf").measure(OPTIONS, 1)
