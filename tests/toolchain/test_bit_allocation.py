"""Bit allocation: which weights get more bits, and how the choice is recorded."""

from itertools import pairwise

import pytest

from mlc_toolchain.bit_allocation import Unit, allocate, bits_per_weight, mixture_parts
from quantization.schemes import SCHEMES, get_scheme, mixture_name

BASE = SCHEMES["q4f16_nl"]


def layers(kind, numbers):
    return tuple(f"model.layers.{i}.{kind}.weight" for i in numbers)


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("q2f16_nl8", 2.5),
        ("q3f16_nl8", 3.25),
        ("q4f16_nl", 4.5),
        ("q5f16_nl8", 5.25),
        ("q6f16_3", 6.5),
        ("q8f16_1", 8.5),
    ],
)
def test_bits_of_a_weight(name, bits):
    assert bits_per_weight(SCHEMES[name]) == bits


def test_bits_go_where_they_reduce_the_divergence_most():
    units = [Unit(("a",), 1000, 0.1), Unit(("b",), 1000, 0.05), Unit(("c",), 8000, 0.1)]
    chosen = [[s.name for s in allocate(units, BASE, extra)] for extra in (749, 750, 1500, 2500)]
    assert chosen[0] == ["q4f16_nl"] * 3
    assert chosen[1] == ["q5f16_nl8", "q4f16_nl", "q4f16_nl"]
    assert chosen[2] == ["q5f16_nl8", "q5f16_nl8", "q4f16_nl"]
    assert chosen[3] == ["q6f16_nl8", "q5f16_nl8", "q4f16_nl"]


def test_no_more_bits_are_spent_than_there_are():
    units = [Unit((str(i),), 700 + 100 * i, 0.01 * (i + 1)) for i in range(9)]
    for extra in (0, 5000, 12345, 10**6):
        spent = sum(u.elements * (bits_per_weight(s) - 4.5) for u, s in zip(units, allocate(units, BASE, extra)))
        assert spent <= extra
    assert {s.name for s in allocate(units, BASE, 10**6)} == {"q8f16_1"}


def test_a_kind_of_layer_with_one_scheme_is_one_pattern():
    units = [
        *(Unit(layers("mlp.up", r), 1, 0.1) for r in ((0, 1), (2,))),
        *(Unit(layers("mlp.down", r), 1, 0.1) for r in ((0, 1), (2,))),
        *(Unit(layers("attn", r), 1, 0.1) for r in ((0, 1, 2),)),
    ]
    names = ["q5f16_3", "q5f16_3", "q4f16_nl", "q8f16_1", "q4f16_nl"]
    parts = mixture_parts(units, [SCHEMES[name] for name in names], BASE)
    assert parts == [("model.layers.*.mlp.up", "q5f16_3"), ("model.layers.2.mlp.down", "q8f16_1")]
    mixture = get_scheme(mixture_name("q4f16_nl", parts))
    assert [mixture.part(f"model.layers.2.{kind}").name for kind in ("mlp.up", "mlp.down", "attn")] == [
        "q5f16_3",
        "q8f16_1",
        mixture.name,
    ]


def test_neighbouring_ranges_with_one_scheme_are_one():
    ends = [0, 8, 32, 64, 100]
    units = [Unit(("head.weight",), 1, 0.1, slice(*rows)) for rows in pairwise(ends)]
    names = ["q8f16_1", "q5f16_nl8", "q5f16_nl8", "q4f16_nl"]
    parts = mixture_parts(units, [SCHEMES[name] for name in names], BASE)
    assert parts == [("head[:8]", "q8f16_1"), ("head[:64]", "q5f16_nl8"), ("head[:100]", "q4f16_nl")]
    assert [units[1].described("head.weight"), units[3].rows] == ["head.weight[8:32]", slice(64, 100)]


def test_a_pattern_that_other_layers_fit_is_not_written():
    units = [Unit(("a.0.b.weight", "a.1.b.weight"), 1, 0.1), Unit(("a.0.c.0.b.weight",), 1, 0.1)]
    parts = mixture_parts(units, [SCHEMES["q5f16_3"], BASE], BASE)
    assert parts == [("a.0.b", "q5f16_3"), ("a.1.b", "q5f16_3")]
