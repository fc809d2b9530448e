import ml_dtypes
import numpy as np
import pytest

from quantization.group import decode, encode, max_error, pack, unpack
from quantization.schemes import SCHEMES, Scheme
from tests.compiler.code_words import stored_codes

GROUP_SCHEMES = [name for name, scheme in SCHEMES.items() if scheme.kind == "group"]
MLC_SCHEMES = [name for name in GROUP_SCHEMES if SCHEMES[name].rounding == "model" and SCHEMES[name].bits < 8]


def slow_encode(w, scheme, layout):
    """The definition of group quantization in the model's own arithmetic, one rounding per line."""
    dt = np.dtype(getattr(ml_dtypes, scheme.model_dtype, None) or scheme.model_dtype)
    acc = np.dtype(np.float32) if scheme.model_dtype == "bfloat16" else dt
    n, k = w.shape
    groups = -(-k // scheme.group)
    padded = np.zeros((n, groups * scheme.group), dt)
    padded[:, :k] = w.astype(dt)
    zp = scheme.zero_point
    largest = np.fmax.reduce(np.abs(padded.reshape(n, groups, -1)), axis=-1)
    exact = (largest.astype(acc) / acc.type(zp)).astype(acc)
    scale = exact.astype(dt)
    divisor = exact if (scheme.model_dtype, layout) == ("bfloat16", "KN") else scale.astype(acc)
    with np.errstate(all="ignore"):
        quotient = (padded.astype(acc) / np.repeat(divisor, scheme.group, -1)).astype(acc)
        shifted = np.rint((quotient + acc.type(zp)).astype(np.float32))
    codes = np.clip(np.where(np.isnan(shifted), 0, shifted), 0, 2 * zp).astype(np.uint32)
    codes[:, k:] = 0
    per_word = 32 // scheme.bits
    words = np.zeros((n, groups * scheme.group // per_word), np.uint32)
    for position in range(per_word):
        words |= codes[:, position::per_word] << np.uint32(position * scheme.bits)
    return (words.T, scale.T) if layout == "KN" else (words, scale)


def weights(kind, shape):
    rng = np.random.default_rng(3)
    values = rng.standard_normal(shape).astype(np.float32)
    if kind == "tiny":
        return values * np.float32(2.0**-22)
    if kind == "spread":
        return values * np.exp2(rng.integers(-24, 16, shape)).astype(np.float32)
    if kind == "special":
        values[0, :40] = 0
        values[1, 3], values[1, 70], values[2, 5], values[3, :64] = np.nan, np.inf, -np.inf, 2.0**-24
    return values


@pytest.mark.parametrize("kind", ["normal", "tiny", "spread", "special"])
@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("name", MLC_SCHEMES)
def test_encode_matches_the_definition_to_the_bit(name, source, kind):
    scheme = SCHEMES[name]
    with np.errstate(all="ignore"):
        w = weights(kind, (7, 101)).astype(getattr(ml_dtypes, source, None) or source)
        expected_words, expected_scale = slow_encode(w, scheme, scheme.layout)
    made = encode(w, scheme)
    assert np.array_equal(made["q_scale"].view(np.uint8), np.ascontiguousarray(expected_scale).view(np.uint8))
    assert np.array_equal(made["q_weight"], expected_words)


def test_every_float16_weight_gets_the_code_of_the_definition():
    scheme = SCHEMES["q4f16_1"]
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        w = np.stack([every, every[::-1], np.random.default_rng(0).permutation(every)])
        words, scale = slow_encode(w, scheme, "NK")
    made = encode(w, scheme)
    assert np.array_equal(made["q_weight"], words)
    assert np.array_equal(made["q_scale"], scale, equal_nan=True)


@pytest.mark.parametrize("name", [name for name in GROUP_SCHEMES if not SCHEMES[name].search])
def test_decoding_stays_within_the_error_bound(name):
    scheme = SCHEMES[name]
    dtype = getattr(ml_dtypes, scheme.model_dtype, None) or scheme.model_dtype
    w = weights("normal", (64, 333)).astype(dtype)
    made = encode(w, scheme)
    back = decode(made, scheme, 333)
    scales = made["q_scale"].T if scheme.layout == "KN" else made["q_scale"]
    bound = np.repeat(max_error(scales, scheme), scheme.group, axis=-1)[:, :333]
    error = np.abs(w.astype(np.float64) - back.astype(np.float64))
    assert (error <= bound).all()
    assert error.max() > bound.max() / 4


@pytest.mark.parametrize("name", ["q4f32_1", "q8f32_1"])
def test_encoding_the_decoded_weights_changes_nothing(name):
    scheme = SCHEMES[name]
    once = encode(weights("normal", (16, 128)), scheme)
    twice = encode(decode(once, scheme, 128), scheme)
    assert np.array_equal(once["q_weight"], twice["q_weight"])


def test_experts_are_quantized_along_the_last_axis():
    w = weights("normal", (12, 64)).astype(np.float16)
    scheme = SCHEMES["q4f16_1"]
    stacked = encode(w.reshape(3, 4, 64), scheme)
    assert stacked["q_weight"].shape == (3, 4, 8)
    assert np.array_equal(stacked["q_weight"].reshape(12, 8), encode(w, scheme)["q_weight"])


@pytest.mark.parametrize("bits", range(1, 9))
def test_codes_lie_in_words_as_documented(bits):
    scheme = Scheme("", "group", "float16", bits, 64 if bits != 7 else 8)
    codes = np.random.default_rng(0).integers(0, 1 << bits, (5, 3 * scheme.group), np.uint8)
    words = pack(codes, scheme)
    assert words.shape == (5, scheme.words(codes.shape[1]))
    assert np.array_equal(stored_codes(words, bits, scheme.group), codes)
    assert np.array_equal(unpack(words, scheme), codes)
