"""A row of a linear layer has the same bits alone and beside other rows, for any number of columns."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, spec
from quantization.codecs import codec
from quantization.rewrite import quantize_model, quantized_names
from quantization.schemes import get_scheme

K, ROWS, WIDTHS = 160, 7, (1, 2, 3, 8, 17, 64)


class Layers(nn.Module):
    """Linear layers of all widths with the same input."""

    def __init__(self) -> None:
        self.layers = nn.ModuleList([nn.Linear(K, width, bias=False) for width in WIDTHS])

    def main(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(layer(x) for layer in self.layers)

    def one(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.main(x)


@pytest.mark.parametrize("target", ["cpu", "cpu:x86-64-v3"])
@pytest.mark.parametrize("name", ["q0f32", "q4f16_1"])
def test_a_row_alone_has_the_bits_of_rows_side_by_side(name: str, target: str) -> None:
    scheme, model, rng = get_scheme(name), Layers(), np.random.default_rng(2)
    plain = {path: rng.standard_normal(p.shape).astype(np.float32) for path, p in model.named_parameters()}
    formats, stored = quantize_model(model, scheme), {}
    for path, weight in plain.items():
        if path not in formats:
            stored[path] = weight
            continue
        made = codec(scheme).encode_rows(lambda: [weight], weight.shape, scheme, formats[path].layout)  # noqa: B023
        stored |= {quantized_names(path)[0].removesuffix("q_weight") + part: value for part, value in made.items()}
    dtype = scheme.model_dtype
    functions = {"main": {"x": spec.Tensor(["n", K], dtype)}, "one": {"x": spec.Tensor([1, K], dtype)}}
    compiled = model.jit(functions, params=stored, target=target)
    x = rng.standard_normal((ROWS, K)).astype(dtype)
    together = [y.copy() for y in compiled["main"](x)]
    for row in range(ROWS):
        for function in ("main", "one"):
            alone = compiled[function](x[row : row + 1])
            for width, got, expected in zip(WIDTHS, alone, together, strict=True):
                assert np.array_equal(got[0], expected[row]), (function, row, width)
