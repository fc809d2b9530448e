import pytest

from mlc_compiler import nn
from mlc_errors import UsageError
from quantization.rewrite import quantize_model
from quantization.schemes import get_scheme


def test_an_unknown_name_is_answered_with_near_ones():
    with pytest.raises(UsageError, match="got 'q4f16_9'") as caught:
        get_scheme("q4f16_9")
    assert "q4f16_" in caught.value.hint


class Model(nn.Module):
    def __init__(self, tied):
        self.table = nn.Embedding(7, 32)
        self.up_proj, self.down_proj = nn.Linear(32, 64), nn.Linear(64, 32)
        self.lm_head = None if tied else nn.Linear(32, 7)


@pytest.mark.parametrize(
    ("name", "tied", "wide"),
    [
        ("q4f16_m", True, {"table"}),
        ("q4f16_m", False, {"lm_head"}),
        ("q4f16_l", True, {"table", "down_proj"}),
        ("q4f16_nl", True, set()),
    ],
)
def test_parts_of_a_mixed_scheme(name, tied, wide):
    model = Model(tied)
    formats = quantize_model(model, get_scheme(name))
    stored = {path.removesuffix(".weight"): form.scheme.name for path, form in formats.items()}
    assert {path for path, scheme in stored.items() if scheme == "q8f16_1"} == wide
    assert {scheme for path, scheme in stored.items() if path not in wide} == {name}
    assert model.table.q_weight.shape == ((7, 8) if "table" in wide else (7, 4))


def test_a_mixture_by_name():
    mixture = get_scheme("q4f16_nl,down_proj=q6f16_3,head=q8f16")
    assert mixture.name == "q4f16_nl,down_proj=q6f16_3,head=q8f16_1"
    assert get_scheme(mixture.name) == mixture and mixture.can_calibrate
    model = Model(True)
    stored = {path: form.scheme.name for path, form in quantize_model(model, mixture).items()}
    assert stored == {"table.weight": "q8f16_1", "up_proj.weight": mixture.name, "down_proj.weight": "q6f16_3"}
    assert model.down_proj.q_weight.shape == (32, 64 * 6 // 32)


@pytest.mark.parametrize("part", ["q6f16_3", "=q6f16_3", "head=q4f32_1", "head=q0f16", "head=q4f16_m"])
def test_parts_that_are_none(part):
    with pytest.raises(UsageError, match="expected PATTERN=NAME") as caught:
        get_scheme(f"q4f16_nl,{part}")
    assert "q8f16_1" in caught.value.hint
