"""Scales in one byte: rounding, and the weights that they give."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler.tir import byte_scales
from quantization import group
from quantization.schemes import SCHEMES
from tests.compiler.relax.check_op import run_op

SCHEMES_OF_BYTES = [scheme for scheme in SCHEMES.values() if scheme.byte_scales]


def test_every_byte_is_a_positive_float16_in_ascending_order():
    values = byte_scales.from_bytes(np.arange(256, dtype=np.uint8))
    finite = values[np.isfinite(values)].astype(np.float64)
    assert len(finite) == 31 * 8 and np.array_equal(finite, np.unique(finite)) and finite[0] == 0
    assert np.array_equal(byte_scales.to_bytes(values), np.arange(256))
    assert np.array_equal(byte_scales.rounded(values[:248]), values[:248])


def test_scales_are_rounded_to_the_nearest():
    scales = np.geomspace(6.2e-5, 6e4, 5000).astype(np.float16)
    representable = byte_scales.from_bytes(np.arange(248, dtype=np.uint8)).astype(np.float64)
    nearest = np.abs(scales.astype(np.float64)[:, None] - representable).min(axis=1)
    for sign in (1, -1):
        rounded = byte_scales.rounded(np.float16(sign) * scales).astype(np.float64)
        assert np.array_equal(np.abs(rounded - sign * scales.astype(np.float64)), nearest)
    assert (nearest / scales).max() <= 2**-4


@pytest.mark.parametrize("scheme", SCHEMES_OF_BYTES, ids=lambda s: s.name)
def test_the_operator_decodes_what_is_encoded(scheme):
    weight = np.random.default_rng(0).standard_normal((6, 4 * scheme.group - 3)).astype(np.float32)
    weight[0] = 0
    stored = group.encode(weight, scheme)
    assert stored["q_scale"].dtype == np.uint8
    attrs = {"bits": scheme.bits, "group": scheme.group, "k": weight.shape[1], "values": scheme.values}
    got = run_op("dequantize", stored["q_weight"], stored["q_scale"], dtype="float32", **attrs)
    levels = scheme.levels[group.unpack(stored["q_weight"], scheme)]
    scales = byte_scales.from_bytes(stored["q_scale"]).astype(np.float64).repeat(scheme.group, axis=1)
    np.testing.assert_allclose(got, (levels * scales)[:, : weight.shape[1]], rtol=1e-6)
    assert np.square(got - weight)[1:].mean() < {2: 0.13, 3: 0.035, 4: 0.01}[scheme.bits] * np.square(weight[1:]).mean()


@pytest.mark.parametrize("scheme", SCHEMES_OF_BYTES, ids=lambda s: s.name)
def test_a_group_whose_largest_weight_is_negative_is_the_mirror_image(scheme):
    weight = np.random.default_rng(1).standard_normal((3, 2 * scheme.group)).astype(np.float16)
    plus, minus = (group.encode(w, scheme) for w in (weight, -weight))
    assert np.array_equal(plus["q_scale"], minus["q_scale"])
    codes = [group.unpack(made["q_weight"], scheme) for made in (plus, minus)]
    assert np.array_equal(codes[0], scheme.max_code - codes[1])
