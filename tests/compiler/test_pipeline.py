"""Every pass of the pipeline leaves a module that verifies and round-trips through text."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from mlc_compiler import pipeline as compiler_pipeline
from mlc_compiler.ir.structural import first_difference
from mlc_compiler.pipeline import entries, pipeline, run_passes
from mlc_compiler.script import parse, to_text
from mlc_compiler.target import Target
from mlc_compiler.verifier import verify
from model_zoo.registry import ARCHITECTURES, export_model
from quantization.schemes import get_scheme


def read_back_equal(mod):
    text = to_text(mod)
    assert first_difference(parse(text.text, text.constants), mod) is None


def test_text_reads_back_after_every_pass():
    """Of GPT-2; ``model_zoo/test_model_text.py`` has Llama, on several targets."""
    config = replace(ARCHITECTURES["gpt2"].tiny, num_hidden_layers=1)
    exported = export_model(config, get_scheme("q0f32")).mod
    mod = exported.with_functions({name: exported[name] for name in ("embed", "decode", "batch_prefill")})
    seen = []

    def check(after):
        seen.append(len(after.functions))
        verify(after)
        read_back_equal(after)

    run_passes(mod, pipeline(Target("cpu:x86-64-v3")), check=check)
    assert len(seen) == len(pipeline(Target("cpu:x86-64-v3")))


def test_several_processes_give_the_same_module(monkeypatch: pytest.MonkeyPatch):
    """Of a model with quantized experts, whose kernels have weights in layouts of their own."""
    mod = export_model(ARCHITECTURES["qwen3_moe"].tiny, get_scheme("q4f16_1")).mod
    found = []
    for cores in (1, 3):
        monkeypatch.setattr(compiler_pipeline, "available_cores", lambda cores=cores: cores)
        found.append(run_passes(mod, pipeline(Target("cpu:x86-64-v4"))))
    assert list(found[0]) == list(found[1])
    assert first_difference(*found) is None


def test_the_documentation_lists_the_passes_in_order():
    text = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
    section = text.partition("## The passes, in order")[2].partition("\n## ")[0]
    steps = dict.fromkeys(step.name for step in (*entries(), *pipeline(Target())))
    assert re.findall(r"^\| `([a-z0-9-]+)` \|", section, re.MULTILINE) == list(steps)


def test_passes_have_names_of_their_own_module():
    for step in pipeline(Target()):
        assert type(step).__module__.rsplit(".", 1)[-1].replace("_", "-") in (step.name, "apply"), step.name
