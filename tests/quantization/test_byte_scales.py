"""Scales in one byte: rounding, and the weights that they give."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler.tir import byte_scales
from quantization import group
from quantization.schemes import SCHEMES
from tests.compiler.relax.check_op import run_op

SCHEMES_OF_BYTES = [scheme for scheme in SCHEMES.values() if scheme.byte_scales]


def test_every_byte_is_a_float16_with_a_sign():
    values = byte_scales.from_bytes(np.arange(256, dtype=np.uint8))
    magnitudes, negative = values[:128].astype(np.float64), values[128:]
    assert magnitudes[0] == 0 and np.array_equal(magnitudes, np.unique(magnitudes)) and 0.119 < magnitudes[-1] < 0.12
    assert np.array_equal(-negative, values[:128]) and np.signbit(negative).all()
    assert (magnitudes[13:] / magnitudes[12:-1]).max() < 1.1
    assert np.array_equal(byte_scales.to_bytes(values).view(np.uint8), np.arange(256))


def test_scales_are_rounded_to_the_nearest():
    """Of two values, the nearest in units of float16's last place, which doubles at powers of two."""
    scales = np.geomspace(6.2e-5, 0.119, 5000).astype(np.float16)
    values = byte_scales.from_bytes(np.arange(128, dtype=np.uint8)).view(np.uint16).astype(int)
    nearest = np.abs(scales.view(np.uint16).astype(int)[:, None] - values).min(axis=1)
    for sign in (1, -1):
        rounded = byte_scales.rounded(np.float16(sign) * scales)
        assert np.array_equal(np.signbit(rounded), np.full(5000, sign < 0))
        found = np.abs(np.abs(rounded).view(np.uint16).astype(int) - scales.view(np.uint16))
        assert np.array_equal(found, nearest)
    assert nearest.max() == byte_scales.STEP // 2


def test_larger_scales_become_the_largest():
    rounded = byte_scales.rounded(np.array([0.13, 7, np.inf, -np.inf], np.float16))
    assert np.array_equal(np.abs(rounded), np.full(4, byte_scales.largest_value()))
    assert np.array_equal(np.signbit(rounded), [False, False, False, True])


@pytest.mark.parametrize("factor", [1, 64], ids=["numpy", "compiled"])
def test_weights_beyond_the_largest_scale_are_refused(factor):
    scheme, weight = SCHEMES["q3f16_nl8"], np.ones((64 * factor, 64 * factor), np.float16)
    assert 15.1 < scheme.largest_weight < 15.2
    weight[5, 7] = 15.1
    group.encode_rows(lambda: [weight], weight.shape, scheme, "NK")
    weight[5, 7] = 15.2
    with pytest.raises(ValueError, match="a weight that q3f16_nl8 cannot hold"):
        group.encode_rows(lambda: [weight], weight.shape, scheme, "NK")


@pytest.mark.parametrize("scheme", SCHEMES_OF_BYTES, ids=lambda s: s.name)
def test_the_operator_decodes_what_is_encoded(scheme):
    weight = np.random.default_rng(0).standard_normal((6, 4 * scheme.group - 3)).astype(np.float32)
    weight[0] = 0
    stored = group.encode(weight, scheme)
    assert stored["q_scale"].dtype == np.int8 and (stored["q_scale"] < 0).any()
    attrs = {"bits": scheme.bits, "group": scheme.group, "k": weight.shape[1], "values": scheme.values}
    got = run_op("dequantize", stored["q_weight"], stored["q_scale"], dtype="float32", **attrs)
    levels = scheme.levels[group.unpack(stored["q_weight"], scheme)]
    scales = byte_scales.from_bytes(stored["q_scale"]).astype(np.float64).repeat(scheme.group, axis=1)
    np.testing.assert_allclose(got, (levels * scales)[:, : weight.shape[1]], rtol=1e-6)
    assert (
        np.square(got - weight)[1:].mean()
        < {2: 0.11, 3: 0.03, 4: 0.007, 5: 0.002, 6: 0.0005}[scheme.bits] * np.square(weight[1:]).mean()
    )


@pytest.mark.parametrize("scheme", SCHEMES_OF_BYTES, ids=lambda s: s.name)
def test_a_group_whose_largest_weight_is_negative_is_the_mirror_image(scheme):
    weight = np.random.default_rng(1).standard_normal((3, 2 * scheme.group)).astype(np.float16)
    plus, minus = (group.encode(w, scheme) for w in (weight, -weight))
    assert np.array_equal(plus["q_scale"], minus["q_scale"] ^ np.int8(-128))
    assert np.array_equal(plus["q_weight"], minus["q_weight"])
