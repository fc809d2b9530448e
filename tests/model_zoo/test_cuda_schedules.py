"""GPU schedule rules chosen for the models' tensor functions at their real sizes."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

import pytest

from mlc_compiler.backends import backend_of
from mlc_compiler.passes.pack_layouts import PackLayouts
from mlc_compiler.pipeline import pipeline, run_passes
from mlc_compiler.target import Target
from mlc_compiler.tir.nodes import PrimFunc
from mlc_toolchain.source import resolve_source
from model_zoo.registry import export_model, get
from quantization.schemes import get_scheme

TARGET = Target("cuda:sm_90a")
PRESETS = ("smollm2-135m-instruct", "gpt2", "qwen2.5-0.5b-instruct", "mistral-7b-instruct-v0.3")


def rules(preset: str, scheme: str) -> dict[str, str]:
    """The schedule rules of the tensor functions of a one-layer model; hand-written kernels have none."""
    raw = resolve_source(preset).config()
    config = replace(get(raw["model_type"]).config.from_hf(raw), num_hidden_layers=1)
    weights = get_scheme(scheme)
    exported = export_model(config, weights, backend_of(TARGET).activation_dtype(weights.model_dtype))
    scheduled = run_passes(exported.mod, list(takewhile(lambda p: not isinstance(p, PackLayouts), pipeline(TARGET))))
    return {n: str(f.attrs["schedule"]) for n, f in scheduled.of_type(PrimFunc).items() if "schedule" in f.attrs}


@pytest.mark.parametrize("scheme", ["q0f32", "q4f32_1", "q4f16_1"])
@pytest.mark.parametrize("preset", PRESETS)
def test_products_are_products_norms_are_rows_and_nothing_falls_back(preset: str, scheme: str) -> None:
    found = rules(preset, scheme)
    expected = {
        n: "Matmul" if "linear" in n else "RowReduction" if "norm" in n or "softmax" in n else "Elementwise"
        for n in found
    }
    assert found == expected
    assert sum(rule == "Matmul" for rule in expected.values()) >= 8
    assert sum(rule == "RowReduction" for rule in expected.values()) >= 2
