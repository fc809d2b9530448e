import ml_dtypes
import numpy as np
import pytest

from quantization import block_scale
from quantization.schemes import get_scheme

SCHEME = get_scheme("fp8_e4m3fn_bf16_block_scale")
SHAPE = (2, 130, 200)


def weights():
    made = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    made[0, :128, :128] *= 1000
    made[1, 128:, 128:] = 0
    return made


def encode(array, pieces=1):
    return block_scale.encode_rows(lambda: np.array_split(array, pieces), array.shape, SCHEME, "NK")


def test_every_block_has_the_scale_of_its_largest_weight():
    array = weights()
    made = encode(array)
    announced = block_scale.tensors(SHAPE, SCHEME, "NK")
    assert {kind: (part.shape, part.dtype.name) for kind, part in made.items()} == announced
    for expert, row, column in np.ndindex(2, 2, 2):
        place = (expert, slice(row * 128, row * 128 + 128), slice(column * 128, column * 128 + 128))
        top = np.abs(array[place]).max()
        scale = made["weight_scale_inv"][expert, row, column]
        assert scale == (top / np.float32(448) if top else 1)
        codes = made["weight"][place].astype(np.float32)
        np.testing.assert_array_equal(codes, (array[place] / scale).astype(ml_dtypes.float8_e4m3fn).astype(np.float32))
        assert np.abs(codes).max() == (448 if top else 0)


def test_decoding_is_within_half_a_step_of_the_codes():
    array = weights()
    back = np.concatenate(list(block_scale.decode_rows(encode(array), SCHEME, SHAPE, "NK"))).reshape(SHAPE)
    assert back.dtype == ml_dtypes.bfloat16
    error = np.abs(back.astype(np.float32) - array)
    smallest = np.abs(array).max() / 448 * 2.0**-9
    assert (error <= np.maximum(np.abs(array) * (2.0**-4 + 2.0**-8), smallest)).all()


def test_pieces_of_any_size_give_the_same_tensors():
    rows = weights()[0]
    whole, pieces = encode(rows), encode(rows, 7)
    for kind, array in whole.items():
        np.testing.assert_array_equal(array.view(np.uint8), pieces[kind].view(np.uint8))


def test_weights_whose_scale_is_subnormal_saturate():
    made = encode(np.full((1, 1), 1.5 * 448 * 2.0**-149, np.float32))
    assert np.isfinite(made["weight"].astype(np.float32)).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_refused(value):
    with pytest.raises(ValueError, match="not finite"):
        encode(np.array([[1.0, value]], np.float32))
