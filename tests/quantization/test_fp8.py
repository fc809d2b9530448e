import ml_dtypes
import numpy as np
import pytest

from quantization import fp8
from quantization.schemes import SCHEMES

NAMES = ["e4m3_e4m3_f16", "e5m2_e5m2_f16"]


def encode(weights, scheme):
    return fp8.encode_rows(lambda: [weights], weights.shape, scheme, "NK")


def decode(made, scheme, shape):
    return np.concatenate(list(fp8.decode_rows(made, scheme, shape, "NK")))


@pytest.mark.parametrize("name", NAMES)
def test_shapes_and_dtypes_are_those_announced(name):
    scheme = SCHEMES[name]
    made = encode(np.ones((3, 5), np.float16), scheme)
    assert {kind: (array.shape, array.dtype.name) for kind, array in made.items()} == fp8.tensors((3, 5), scheme, "NK")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1e-6, 0.02, 1.0, 300.0])
def test_decoding_stays_within_the_error_bound(name, size):
    scheme = SCHEMES[name]
    weights = (np.random.default_rng(0).standard_normal((200, 300)) * size).astype(np.float16)
    made = encode(weights, scheme)
    scale = made["q_scale"][0] if scheme.scaled else 1.0
    error = np.abs(weights.astype(np.float64) - decode(made, scheme, weights.shape).astype(np.float64))
    assert (error <= fp8.max_error(weights, scale, scheme)).all()


def test_codes_round_to_nearest_even_over_all_of_float16():
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)]
    codes = encode(finite[None], SCHEMES["e5m2_e5m2_f16"])["q_weight"][0].astype(np.float64)
    levels = np.unique(np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e5m2).astype(np.float64))
    levels = levels[np.isfinite(levels)]
    nearest = np.abs(finite.astype(np.float64)[:, None] - levels).min(axis=1)
    assert np.array_equal(np.abs(finite.astype(np.float64) - codes), nearest)


def test_the_scale_is_computed_in_float16():
    scheme = SCHEMES["e4m3_e4m3_f16"]
    made = encode(np.array([[100.0, -3.0]], np.float32), scheme)
    assert made["q_scale"][0] == np.float32(np.float16(np.float16(100) / np.float16(448)))
    assert made["q_calibration_scale"].tolist() == [1.0]
    assert encode(np.zeros((1, 2)), scheme)["q_scale"][0] == np.float32(np.float16(1 / (448 * 512)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e6])
def test_what_float16_cannot_hold_is_refused(name, value):
    with np.errstate(over="ignore"), pytest.raises(ValueError, match="cannot hold"):
        encode(np.array([[1.0, value]], np.float64), SCHEMES[name])
