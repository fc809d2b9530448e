"""The benchmark of models on a simulated GPU: sequences, random weights, work and shares."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import measuring
import models
import numpy as np
import pytest
from cuda_device import Device
from engines_gpu import WARM_UP, CompiledEngine
from models import Decode, Limits, Prefill, Work, measure, read_limits
from presets import Preset, export_preset
from random_weights import RandomWeights

from mlc_compiler.sim.driver import SimulatedDriver
from mlc_compiler.target import Target
from mlc_runtime.model_spec import ParamSpec

TARGET = Target("cuda:sm_80")
TINY = {"num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2}
TINY |= {"num_key_value_heads": 1, "vocab_size": 256, "context_window_size": 64, "prefill_chunk_size": 16}
GPU = Device("Simulated GPU", 80, 4, 1e9, 1e9, 512, 1 << 20, 13000)


def tiny(scheme: str) -> Preset:
    return export_preset("tinyllama-1.1b-chat", scheme, TARGET, max_batch_size=4, **TINY)


@pytest.fixture(scope="module")
def engine() -> Iterator[CompiledEngine]:
    with SimulatedDriver("sm_80") as driver:
        made = CompiledEngine(tiny("q4f16_1"), "q4f16_1", TARGET, driver.install)
        yield made
        made.close()
        assert driver.fault is None


def test_sequences_have_the_length_that_is_asked_for(engine: CompiledEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    pool = engine.model.pool
    remove = pool.remove
    monkeypatch.setattr(pool, "remove", lambda row: (lengths.append(pool.lengths[row]), remove(row)))
    assert engine.decode(batch=2, context=5, steps=3) > 0
    assert lengths == [5 + WARM_UP + 3] * 2
    assert engine.prefill(20) > 0
    assert lengths[2:] == [20]
    assert pool.num_sequences == 0


def test_a_measurement_of_every_size(engine: CompiledEngine) -> None:
    work = Work(weight_bytes=1000, cache_bytes=10, linear=50, layers=2, hidden=4)
    speed = measure("tiny", engine, work, Limits(1e6, 1e9), batches=(1, 2), prefills=(3,), context=4, steps=2, repeat=1)
    assert (speed.model, speed.engine) == ("tiny", "mlc q4f16_1")
    for decode, batch in zip(speed.decode, (1, 2), strict=True):
        bytes_of_step = 1000 + batch * 5 * 10
        assert decode == Decode(
            batch, decode.tokens_per_s, pytest.approx(decode.tokens_per_s / batch * bytes_of_step / 1e6)
        )
    (prefill,) = speed.prefill
    assert prefill == Prefill(3, prefill.tokens_per_s, pytest.approx(prefill.tokens_per_s / 3 * 2 * (150 + 96) / 1e9))


def test_work_of_a_model() -> None:
    work = Work.of(tiny("q4f16_1"), tiny("q0f16"))
    linear = 64 * (64 + 2 * 32) + 64 * 64 + 3 * 64 * 96
    assert (work.linear, work.layers, work.hidden, work.cache_bytes) == (linear, 1, 64, 2 * 32 * 2)
    assert work.prefill_flop(10) == 2 * (10 * linear + 64 * 110)
    assert work.step_bytes(3, 7) == work.weight_bytes + 21 * work.cache_bytes


def test_random_weights_keep_the_size_of_activations() -> None:
    specs = [
        ParamSpec("norm", (8,), "float16", None),
        ParamSpec("a.q_weight", (64, 96), "uint32", None),
        ParamSpec("a.q_scale", (64, 24), "float16", None),
    ]
    weights = RandomWeights(specs)
    assert (weights.read("norm") == 1).all()
    assert len(np.unique(weights.read("a.q_weight"))) > 6000
    assert weights.read("a.q_scale").astype(np.float32).std() == pytest.approx(0.004, rel=0.1)
    assert np.array_equal(RandomWeights(specs).read("a.q_weight"), weights.read("a.q_weight"))


def test_limits_are_the_best_of_the_saved_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "RESULTS", tmp_path)
    monkeypatch.setattr(measuring, "RESULTS", tmp_path)
    assert read_limits(GPU) is None
    saved = {"read": [{"bytes_per_s": 1e12}, {"bytes_per_s": 3e12}], "products": [{"flop_per_s": 4e14}]}
    saved["warpgroup_products"] = [{"flop_per_s": 5e14}]
    path = measuring.save(saved, f"gpu_micro-{GPU.slug}")
    assert json.loads(path.read_text()) == saved
    assert read_limits(GPU) == Limits(3e12, 5e14)
