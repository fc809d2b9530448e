from functools import cache

import numpy as np
import pytest

from mlc_compiler import build, nn
from mlc_compiler.interp import run_function
from mlc_compiler.nn import op, spec

VOCAB = 37
TARGETS = ("cpu", "cpu:x86-64-v3", "cpu:generic")


def sample(logits, temperature, top_p, uniform):
    return op.sample_top_p(op.softmax_with_temperature(logits, temperature), top_p, uniform)


def exported(vocab):
    row = spec.Tensor(["n"])
    inputs = {"logits": spec.Tensor(["n", vocab]), "temperature": row, "top_p": row, "uniform": row}
    return nn.Module().export(spec.ModuleSpec({"sample": spec.Function(sample, inputs, "none")}))[0]


@pytest.fixture(scope="module")
def mod():
    return exported(VOCAB)


def draw(mod, logits, temperature, top_p, uniform):
    rows = [np.broadcast_to(np.float32(x), len(logits)).astype(np.float32) for x in (temperature, top_p, uniform)]
    tokens = run_function(mod, "sample", logits.astype(np.float32), *rows)
    for target in TARGETS:
        np.testing.assert_array_equal(compiled(mod, target)["sample"](logits.astype(np.float32), *rows), tokens)
    return tokens


@cache
def compiled(mod, target):
    return build(mod, target, num_threads=2)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def expected(probs, top_p, uniform):
    """Reference by sorting: the smallest set of most probable tokens with at least top_p, drawn in order of ids."""
    order = np.argsort(-probs, kind="stable")
    count = np.searchsorted(np.cumsum(probs[order]), top_p) + 1
    kept = np.sort(order[:count])
    running = np.cumsum(probs[kept])
    return kept[np.searchsorted(running, uniform * running[-1], side="right")]


def test_temperature_zero_selects_the_first_maximum(mod):
    logits = np.random.default_rng(1).standard_normal((4, VOCAB))
    logits[0, [5, 20]] = logits[1, [35, 36]] = logits[2, 0] = 9
    assert list(draw(mod, logits, 0, 0.1, 0.99)) == [5, 35, 0, logits[3].argmax()]


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 1.0])
def test_draws_as_by_sorting(mod, temperature, top_p):
    rng = np.random.default_rng(2)
    logits = 2 * rng.standard_normal((6, VOCAB)).astype(np.float32)
    uniform = rng.uniform(size=6).astype(np.float32)
    probs = softmax(logits.astype(np.float64) / np.float32(temperature))
    assert list(draw(mod, logits, temperature, top_p, uniform)) == [
        expected(p, top_p, u) for p, u in zip(probs, uniform)
    ]


@pytest.mark.parametrize("vocab", [16, 1024, 2500])
def test_vocabularies_of_one_and_several_chunks(vocab):
    rng = np.random.default_rng(4)
    logits = 2 * rng.standard_normal((4, vocab)).astype(np.float32)
    uniform = np.array([0.0, 0.3, 0.6, 0.999], np.float32)
    probs = softmax(logits.astype(np.float64))
    assert list(draw(exported(vocab), logits, 1, 0.8, uniform)) == [expected(p, 0.8, u) for p, u in zip(probs, uniform)]
    assert list(draw(exported(vocab), logits, 0, 1, uniform)) == list(logits.argmax(-1))


def test_each_row_has_its_own_settings(mod):
    logits = np.zeros((3, VOCAB))
    logits[:, 10:12] = 5
    tokens = draw(mod, logits, [0, 1, 1], [1, 0.9, 0.9], [0.9, 0.2, 0.8])
    assert list(tokens) == [10, 10, 11]


def test_whole_range_of_uniform_is_drawn(mod):
    logits = np.zeros((2, VOCAB))
    assert list(draw(mod, logits, 1, 1, [0.0, np.nextafter(np.float32(1), np.float32(0))])) == [0, VOCAB - 1]


def test_top_p_zero_keeps_the_most_probable(mod):
    logits = np.random.default_rng(3).standard_normal((2, VOCAB))
    assert list(draw(mod, logits, 1, 0, 0.7)) == list(logits.argmax(-1))
