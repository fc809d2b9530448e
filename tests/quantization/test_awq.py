import numpy as np
import pytest

from mlc_errors import UnsupportedError
from quantization import awq
from quantization.schemes import get_scheme
from tests.toolchain import packing

SCHEME = get_scheme("q4f16_autoawq")


def test_decoding_is_code_minus_zero_times_scale():
    parts = packing.random_codes(np.random.default_rng(0), 16, 256, 128, 4)
    stored = packing.awq_tensors("x", *parts)
    made = {kind: stored[f"x.{kind}"] for kind in ("qweight", "qzeros", "scales")}
    made = {kind: array.view(np.uint32) if array.dtype == np.int32 else array for kind, array in made.items()}
    assert {kind: (part.shape, part.dtype.name) for kind, part in made.items()} == awq.tensors((16, 256), SCHEME, "KN")
    (back,) = awq.decode_rows(made, SCHEME, (16, 256), "KN")
    np.testing.assert_array_equal(back, packing.values(*parts, np.arange(256) // 128).astype(np.float16))


@pytest.mark.parametrize("shape", [(12, 128), (16, 100)])
def test_sizes_that_do_not_fill_words_and_groups_are_refused(shape):
    with pytest.raises(UnsupportedError, match="q4f16_autoawq: got a weight of .*; expected multiples of 8 and 128"):
        awq.tensors(shape, SCHEME, "KN")
