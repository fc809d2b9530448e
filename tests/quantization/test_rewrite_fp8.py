"""Linear layers with float8 weights, against matmuls with dequantized weights and rounded inputs."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mlc_compiler import build, nn
from mlc_compiler.interp import run_function
from mlc_compiler.nn import spec
from quantization import fp8
from quantization.rewrite import quantize_model
from quantization.schemes import get_scheme


class Two(nn.Module):
    def __init__(self) -> None:
        self.first = nn.Linear(24, 10, bias=True)
        self.lm_head = nn.Linear(10, 7, bias=False)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.lm_head(self.first(x))


def rounded(x: np.ndarray, scale: np.float32) -> np.ndarray:
    """Round x to float8_e4m3fn with ``scale``; values out of range are clipped."""
    codes = np.clip(x.astype(np.float32) / scale, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    return codes.astype(np.float32) * scale


def results(name: str, weight: np.ndarray, x: np.ndarray, input_scale: float) -> tuple[np.ndarray, ...]:
    """Results of ``Two``: of the interpreter, compiled, and by the formulas of the scheme."""
    scheme, model = get_scheme(name), Two()
    assert list(quantize_model(model, scheme)) == ["first.weight"]
    given = {"x": spec.Tensor([3, 24], str(x.dtype))}
    mod, parameters = model.export(spec.ModuleSpec({"main": spec.Function(model.forward, given, "plain", {})}))
    rng, scale = np.random.default_rng(0), np.float32(input_scale)
    made = fp8.encode_rows(lambda: [weight], weight.shape, scheme, "NK", scale)
    values = {f"first.{part}": array for part, array in made.items()}
    values["first.bias"] = rng.standard_normal(10).astype(np.float16)
    values["lm_head.weight"] = rng.standard_normal((7, 10)).astype(np.float16)
    arguments = [x, *(values[n] for n in parameters)]
    got, native = run_function(mod, "main", *arguments), build(mod)["main"](*arguments)
    decoded = made["q_weight"].astype(np.float32) * made.get("q_scale", np.float32(1))
    seen = rounded(x, scale) if scheme.float8_inputs else x.astype(np.float32)
    hidden = seen @ decoded.T + values["first.bias"].astype(np.float32)
    return got, native, hidden @ values["lm_head.weight"].astype(np.float32).T


@pytest.mark.parametrize("name", ["e4m3_e4m3_f16", "e5m2_e5m2_f16", "e4m3_e4m3_f16_max_calibrate"])
def test_the_product_is_that_of_the_decoded_weights(name: str) -> None:
    rng = np.random.default_rng(1)
    weight, x = rng.standard_normal((10, 24)).astype(np.float32), rng.standard_normal((3, 24)).astype(np.float32)
    *computed, expected = results(name, weight, x, 1.5 / 448)
    for got in computed:
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4)
