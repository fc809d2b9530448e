"""Texts that a model writes for its calibration."""

import numpy as np
import pytest

from mlc_toolchain.calibration import FUNCTION, SCHEME, CalibratedModel, small_chunks
from mlc_toolchain.checkpoint_config import checkpoint_config
from mlc_toolchain.conversion_plan import describe, plan_weights
from mlc_toolchain.conversion_run import run_conversion
from mlc_toolchain.own_text import SEED, drawn, sampled
from mlc_toolchain.source import resolve_source
from model_zoo import registry
from tests.e2e.checkpoints import random_model, save_checkpoint


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    save_checkpoint(random_model("llama-odd-llama3"), folder / "hf")
    source, architecture = resolve_source(str(folder / "hf")), registry.get("llama")
    config = architecture.config.from_hf(checkpoint_config(source))
    run_conversion(plan_weights(describe(architecture, config, SCHEME), SCHEME, source.weights("auto")), folder / "8")
    return CalibratedModel(architecture, small_chunks(config), folder / "8")


def test_texts_follow_the_distribution_of_the_model(model):
    """Each token is the one that the same random number draws from the logits of a prompt."""
    with model.decoder(None) as decoder:
        first, length = [1, 1, 7], 40
        ids = sampled(decoder, first, length, lambda _: None)
        again = sampled(decoder, first, length, lambda _: None)
    assert np.array_equal(ids, again) and ids.shape == (3, length) and ids[:, 0].tolist() == first
    with model.decoder(lambda logits, _: [logits()]) as decoder:
        logits = np.stack([np.concatenate([a[0] for (a,) in decoder.results(FUNCTION, row.tolist())]) for row in ids])
    rng = np.random.default_rng(SEED)
    expected = np.stack([drawn(logits[:, place], rng.random(3)) for place in range(length - 1)], axis=1)
    assert (expected == ids[:, 1:]).mean() > 0.95  # sums are rounded in another order
    assert len(set(ids.reshape(-1).tolist())) > 40


def test_own_text_is_whole_texts(model):
    steps = []
    text = CalibratedModel(model.architecture, model.config, model.folder, steps.append).own_text([1, 1])
    assert len(text) == 1024 and text[0] == text[512] == 1 and text[:512] != text[512:]
    assert (steps[-1].done, steps[-1].total) == (1024, 1024)


def test_draws_are_by_inversion():
    logits = np.log(np.array([[0.5, 0.25, 0.25], [0.125, 0.875, 1e-30]], np.float32))
    for uniform, expected in ((0.0, [0, 0]), (0.4, [0, 1]), (0.6, [1, 1]), (0.8, [2, 1]), (1 - 2**-53, [2, 1])):
        assert drawn(logits, np.array([uniform, uniform])).tolist() == expected, uniform
