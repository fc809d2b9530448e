"""Linear layers with float8 weights against products with the decoded weights."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mlc_compiler import nn
from mlc_compiler.interp import run_function
from mlc_compiler.nn import spec
from quantization import fp8
from quantization.rewrite import quantize_model
from quantization.schemes import get_scheme


class Two(nn.Module):
    def __init__(self):
        self.first = nn.Linear(24, 10, bias=True)
        self.lm_head = nn.Linear(10, 7, bias=False)

    def forward(self, x):
        return self.lm_head(self.first(x))


@pytest.mark.parametrize("name", ["e4m3_e4m3_f16", "e5m2_e5m2_f16"])
def test_the_product_is_that_of_the_decoded_weights(name: str):
    scheme = get_scheme(name)
    model = Two()
    quantized = quantize_model(model, scheme)
    assert list(quantized) == ["first.weight"]
    mod, parameters = model.export(
        spec.ModuleSpec({"main": spec.Function(model.forward, {"x": spec.Tensor([3, 24], "float32")}, "plain", {})})
    )
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((10, 24)).astype(np.float32)
    made = fp8.encode_rows(lambda: [weight], weight.shape, scheme, "NK")
    values = {f"first.{part}": array for part, array in made.items()}
    values["first.bias"] = rng.standard_normal(10).astype(np.float16)
    values["lm_head.weight"] = rng.standard_normal((7, 10)).astype(np.float16)
    x = rng.standard_normal((3, 24)).astype(np.float32)
    got = run_function(mod, "main", x, *(values[n] for n in parameters))
    scale = made["q_scale"] if scheme.scaled else np.float32(1)
    decoded = made["q_weight"].astype(np.float32) * scale
    assert made["q_weight"].dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
    hidden = x @ decoded.T + values["first.bias"].astype(np.float32)
    np.testing.assert_allclose(got, hidden @ values["lm_head.weight"].astype(np.float32).T, rtol=1e-5, atol=1e-4)
