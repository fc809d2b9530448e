"""The compiled kernels are bit-identical to numpy."""

import ml_dtypes
import numpy as np
import pytest

from quantization import group
from quantization.kernels import SOURCES, encode_kernel
from quantization.schemes import SCHEMES

COMPILED = [name for name, scheme in SCHEMES.items() if scheme.kind == "group"]


def as_source(values, source):
    with np.errstate(all="ignore"):
        return values.astype(getattr(ml_dtypes, source, None) or source)


def weights(inputs, infinite=True):
    rng = np.random.default_rng(5)
    values = rng.standard_normal((40, inputs)) * np.exp2(rng.integers(-6, 3, (40, inputs)))
    values[1], values[2, ::2], values[3] = 0, 0, values[3] * 2.0**-24
    values[7] = 2.0**-24
    if infinite:
        values[4, 7], values[5, 9], values[6] = np.inf, -np.inf, values[6] * 2.0**14
    return values


def encoded(monkeypatch, compiled_elements, w, scheme):
    monkeypatch.setattr(group, "COMPILED_ELEMENTS", compiled_elements)
    made = group.encode(w, scheme)
    return made["q_weight"], made["q_scale"].view(np.uint8)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_and_numpy_encode_alike(name, source, monkeypatch):
    scheme = SCHEMES[name]
    w = as_source(weights(scheme.group * 5, infinite=not scheme.search), source)
    calls = []
    original = group._encode_compiled
    monkeypatch.setattr(group, "_encode_compiled", lambda *a: calls.append(1) or original(*a))
    compiled = encoded(monkeypatch, 0, w, scheme)
    assert calls
    expected = encoded(monkeypatch, 1 << 40, w, scheme)
    assert np.array_equal(compiled[0], expected[0])
    assert np.array_equal(compiled[1], expected[1])


@pytest.mark.parametrize("name", ["q4f16_1", "q4f16_3", "q4bf16_0", "q4f32_1", "q8f16_1"])
def test_every_16_bit_weight_alike(name, monkeypatch):
    scheme = SCHEMES[name]
    every = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16 if "bf16" in name else np.float16)
    every = every[np.isfinite(every.astype(np.float32))]
    every = np.random.default_rng(0).permutation(every)[: len(every) // 32 * 32].reshape(-1, 32)
    compiled = encoded(monkeypatch, 0, every, scheme)
    expected = encoded(monkeypatch, 1 << 40, every, scheme)
    assert np.array_equal(compiled[0], expected[0])
    assert np.array_equal(compiled[1], expected[1])


def test_a_weight_that_is_nan_gets_code_0_as_in_numpy(monkeypatch):
    w = as_source(weights(64), "float16")
    w[0, 3] = np.nan
    scheme = SCHEMES["q4f16_1"]
    assert np.array_equal(encoded(monkeypatch, 0, w, scheme)[0], encoded(monkeypatch, 1 << 40, w, scheme)[0])
    with pytest.raises(ValueError, match="cannot hold"):
        monkeypatch.setattr(group, "COMPILED_ELEMENTS", 0)
        group.encode_rows(lambda: [w], w.shape, scheme, "NK")


def test_schemes_without_a_kernel():
    assert encode_kernel(SCHEMES["q0f16"], "float16", "NK") is None
    assert encode_kernel(SCHEMES["q4f16_1"], "float64", "NK") is None


@pytest.mark.parametrize(
    "name", ["q4f16_3", "q4f16_nl", "q4f16_nvfp4", "q6f16_3", "q4f16_nl8", "q3f16_nl8", "q2f16_nl8"]
)
def test_compiled_and_numpy_weigh_alike(name, monkeypatch):
    scheme, made = SCHEMES[name], []
    w = weights(160, infinite=False).astype(np.float32)
    importance = np.random.default_rng(3).chisquare(1, 160).astype(np.float32)
    for compiled_elements in (0, 1 << 40):
        monkeypatch.setattr(group, "COMPILED_ELEMENTS", compiled_elements)
        made.append(group.encode_rows(lambda: [w], w.shape, scheme, "NK", importance))
    assert np.array_equal(made[0]["q_weight"], made[1]["q_weight"])
    assert np.array_equal(made[0]["q_scale"].view(np.uint8), made[1]["q_scale"].view(np.uint8))
