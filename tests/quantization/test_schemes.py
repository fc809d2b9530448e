import pytest

from mlc_errors import UnsupportedError, UsageError
from quantization.schemes import REFUSED, SCHEMES, get_scheme


@pytest.mark.parametrize("name", REFUSED)
def test_schemes_of_the_format_that_are_missing_name_one_to_take_instead(name):
    with pytest.raises(UnsupportedError, match=f"quantization {name} is not supported: it") as caught:
        get_scheme(name)
    assert caught.value.hint.removeprefix("take ") in SCHEMES


def test_an_unknown_name_is_answered_with_near_ones():
    with pytest.raises(UsageError, match="got 'q4f16_9'") as caught:
        get_scheme("q4f16_9")
    assert "q4f16_" in caught.value.hint
