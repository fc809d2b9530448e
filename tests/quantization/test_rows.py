"""Weights whose ranges of rows have different schemes: names of mixtures, storage, and layers."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler import nn
from mlc_errors import UnsupportedError, UsageError
from quantization import group, rows
from quantization.codecs import codec
from quantization.rewrite import Exceptions, QuantizedRowsEmbedding, QuantizedRowsLinear, quantize_model
from quantization.schemes import HEAD, SCHEMES, get_scheme

MIXTURE = "q3f16_nl8,lm_head[:16]=q6f16_nl8,lm_head[:40]=q5f16_nl8,*up=q4f16_nl8"


def named(ranges):
    return [(of.start, of.stop, scheme.name) for of, scheme in ranges]


def test_the_first_part_that_matches_a_row_is_used():
    scheme = get_scheme(MIXTURE)
    assert scheme.name == MIXTURE and scheme.part("a.up").name == "q4f16_nl8"
    head = scheme.part("lm_head")
    assert named(head.of_rows(100)) == [(0, 16, "q6f16_nl8"), (16, 40, "q5f16_nl8"), (40, 100, "q3f16_nl8")]
    assert named(head.of_rows(20)) == [(0, 16, "q6f16_nl8"), (16, 20, "q5f16_nl8")]
    ends = get_scheme("q4f16_1,head[:8]=q8f16_1,head[:4]=q3f16_1,head=q4f16_nl").part("any", HEAD)
    assert named(ends.of_rows(9)) == [(0, 8, "q8f16_1"), (8, 9, "q4f16_nl")]


@pytest.mark.parametrize("name", ["q4f16_0,head[:8]=q4f16_1", "q4f16_1,head[:8]=q4f16_0", "q4f16_1,head[:0]=q8f16_1"])
def test_transposed_weights_and_empty_ranges_are_refused(name):
    with pytest.raises(UsageError, match=r"got the part 'head\[:\d\]"):
        get_scheme(name)


def test_ranges_are_stored_one_by_one():
    head = get_scheme(MIXTURE).part("lm_head")
    weight = np.random.default_rng(0).standard_normal((70, 96)).astype(np.float16)
    blocks = [weight[:30], weight[30:35], weight[35:]]
    made = codec(head).encode_rows(lambda: blocks, weight.shape, head, "NK")
    assert {name: (array.shape, array.dtype.name) for name, array in made.items()} == rows.tensors((70, 96), head, "NK")
    for i, (of, part) in enumerate(head.of_rows(70)):
        alone = group.encode(weight[of], part)
        assert all(np.array_equal(made[f"parts.{i}.{kind}"], array) for kind, array in alone.items())
    decoded = np.concatenate(list(codec(head).decode_rows(made, head, weight.shape, "NK")))
    errors = [np.square(decoded - weight)[of].mean() for of, _ in head.of_rows(70)]
    assert errors[0] < errors[1] / 2 < errors[2] / 8 and decoded.shape == weight.shape


class Model(nn.Module):
    def __init__(self) -> None:
        self.embed = nn.Embedding(64, 32)
        self.lm_head = nn.Linear(32, 48)
        self.experts = nn.Experts(4, 32, 32)


def test_layers_with_ranges_are_replaced():
    model = Model()
    formats = quantize_model(model, get_scheme("q4f16_1,embed[:8]=q8f16_1,lm_head[:16]=q6f16_nl8"), Exceptions())
    assert isinstance(model.embed, QuantizedRowsEmbedding) and isinstance(model.lm_head, QuantizedRowsLinear)
    assert formats["embed.parts.0.weight"].scheme is SCHEMES["q8f16_1"]
    assert formats["embed.parts.1.weight"].scheme is SCHEMES["q4f16_1"]
    names = {name for name, _ in model.named_parameters() if name.startswith("lm_head")}
    assert names == {f"lm_head.{name}" for name in rows.tensors((48, 32), formats["lm_head.weight"].scheme, "NK")} | {
        "lm_head.bias"
    }


def test_experts_have_no_ranges():
    with pytest.raises(UnsupportedError, match="experts: experts cannot have ranges of rows"):
        quantize_model(Model(), get_scheme("q4f16_1,experts[:8]=q8f16_1"), Exceptions())
