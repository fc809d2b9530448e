import numpy as np
import pytest

from quantization.group import decode, encode, encode_rows, unpack
from quantization.schemes import SCHEMES

PLAIN, SEARCHED = SCHEMES["q4f16_1"], SCHEMES["q4f16_3"]


def group_errors(weights, scheme):
    back = decode(encode(weights, scheme), scheme, weights.shape[1]).astype(np.float64)
    return np.square(weights.astype(np.float64) - back).reshape(len(weights), -1, scheme.group).sum(axis=-1)


DRAWS = {
    "normal": lambda rng: rng.standard_normal((64, 512)),
    "heavy tails": lambda rng: rng.standard_t(4, (64, 512)),
    "uniform": lambda rng: rng.uniform(-1, 1, (64, 512)),
    "one sided": lambda rng: rng.exponential(1, (64, 512)),
}


@pytest.mark.parametrize("kind", DRAWS)
def test_no_group_is_worse_and_all_together_are_better(kind):
    weights = DRAWS[kind](np.random.default_rng(1)).astype(np.float16)
    plain, searched = group_errors(weights, PLAIN), group_errors(weights, SEARCHED)
    assert (searched <= plain * 1.01).all()
    assert searched.sum() < 0.76 * plain.sum()


def test_the_documented_error_on_normal_weights():
    weights = np.random.default_rng(2).standard_normal((256, 1024)).astype(np.float16)
    total = np.square(weights.astype(np.float64)).sum()
    assert round((group_errors(weights, PLAIN).sum() / total) ** 0.5, 3) == 0.097
    assert round((group_errors(weights, SEARCHED).sum() / total) ** 0.5, 3) == 0.081


def test_the_extra_level_is_used_on_the_side_of_the_largest_weight():
    weights = np.full((2, 32), 0.5, np.float16)
    weights[0, 0], weights[1, 0] = 8, -8
    made = encode(weights, SEARCHED)
    assert unpack(made["q_weight"], SEARCHED)[:, 0].tolist() == [15, 15]
    assert np.sign(made["q_scale"][:, 0]).tolist() == [1, -1]


def test_zeros_stay_zeros():
    made = encode(np.zeros((3, 70), np.float16), SEARCHED)
    assert (decode(made, SEARCHED, 70) == 0).all()


@pytest.mark.parametrize("name", ["q4f16_1", "q4f16_3", "q8f16_1", "q4bf16_0"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39])
def test_what_the_dtype_cannot_hold_is_refused(name, value):
    weights = np.ones((4, 64), np.float64)
    weights[2, 5] = value
    with np.errstate(over="ignore"), pytest.raises(ValueError, match="cannot hold"):
        encode_rows(lambda: [weights], weights.shape, SCHEMES[name], SCHEMES[name].layout)


def test_the_documented_error_of_the_codebook():
    book, weights = SCHEMES["q4f16_nl"], np.random.default_rng(2).standard_normal((256, 1024)).astype(np.float16)
    total = np.square(weights.astype(np.float64)).sum()
    assert round((group_errors(weights, book).sum() / total) ** 0.5, 3) == 0.073


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("q5f16_3", 0.040),
        ("q6f16_3", 0.020),
        ("q6f16_nl8", 0.020),
        ("q5f16_nl8", 0.038),
        ("q4f16_nl8", 0.075),
        ("q4f16_nl8_g16", 0.065),
        ("q3f16_nl8", 0.154),
        ("q2f16_nl8", 0.284),
    ],
)
def test_the_documented_errors_of_more_bits(name, error):
    scheme, weights = SCHEMES[name], np.random.default_rng(2).standard_normal((256, 1024)).astype(np.float16)
    total = np.square(weights.astype(np.float64)).sum()
    assert round((group_errors(weights, scheme).sum() / total) ** 0.5, 3) == error


def test_a_group_of_codebook_values_is_kept_exactly():
    book = SCHEMES["q4f16_nl"]
    weights = np.tile(np.array(book.values, np.float16) / 128, (1, 2))
    assert np.array_equal(decode(encode(weights, book), book, 32), weights)


@pytest.mark.parametrize("name", ["q4f16_3", "q4f16_nl"])
def test_weighted_search_reduces_the_weighted_error(name):
    scheme, rng = SCHEMES[name], np.random.default_rng(4)
    weights, importance = rng.standard_normal((64, 512)).astype(np.float16), rng.chisquare(1, 512).astype(np.float32)
    made = [encode_rows(lambda: [weights], weights.shape, scheme, "NK", u) for u in (None, importance)]
    errors = [np.square(decode(m, scheme, 512).astype(np.float64) - weights) @ importance for m in made]
    assert errors[1].sum() < 0.9 * errors[0].sum()
