"""Expert layers of every kind of scheme, against numpy with dequantized weights."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler import nn
from mlc_compiler.nn import spec
from quantization.rewrite import quantize_model
from quantization.schemes import get_scheme
from tests.compiler.backends.expert_matmuls import stored_and_decoded

EXPERTS, K, N, TABLE = 5, 72, 33, 11
IDS, CHOSEN = np.array([3, 0, 10, 7], np.int32), np.array([4, 0, 4, 2], np.int32)
SCHEMES = ("q0f32", "q4f32_1", "q4f16_1", "q4f16_0", "q3f16_1", "q3f16_nl8", "e4m3_e4m3_f16", "e5m2_e5m2_f16")


class Toy(nn.Module):
    """Rows of an embedding, each multiplied by the matrix of its expert, then a linear layer."""

    def __init__(self) -> None:
        self.table = nn.Embedding(TABLE, K)
        self.experts = nn.Experts(EXPERTS, K, N)
        self.out = nn.Linear(N, 7, bias=False)

    def main(self, ids: nn.Tensor, chosen: nn.Tensor) -> nn.Tensor:
        return self.out(self.experts(self.table(ids).astype("float32"), chosen))


@pytest.mark.parametrize("name", SCHEMES)
def test_products_are_those_of_the_decoded_weights(name: str) -> None:
    scheme, model = get_scheme(name), Toy()
    rng = np.random.default_rng(1)
    plain = {n: rng.standard_normal(p.shape).astype(np.float32) for n, p in model.named_parameters()}
    formats = quantize_model(model, scheme)
    assert ("experts.weight" in formats) == (scheme.kind != "none")
    stored, decoded = stored_and_decoded(plain, scheme, formats)
    functions = {"main": {"ids": spec.Tensor(["n"], "int32"), "chosen": spec.Tensor(["n"], "int32")}}
    got = model.jit(functions, params=stored)["main"](IDS, CHOSEN)
    rows = decoded["table.weight"][IDS]
    hidden = np.einsum("tk,tnk->tn", rows, decoded["experts.weight"][CHOSEN])
    np.testing.assert_allclose(got, hidden @ decoded["out.weight"].T, rtol=1e-4, atol=1e-3)
