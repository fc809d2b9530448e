"""Published TVMScript modules of several TVM versions: they are compiled unchanged, and their results checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mlc_compiler import IRModule, build, nn, parse, te
from mlc_compiler.ir.structural import first_difference
from mlc_compiler.nn import op, spec
from mlc_compiler.tir.nodes import PrimFunc
from tests.compiler.api.mlp import B0, B1, W0, W1, WEIGHTS, X, check_mlp
from tests.compiler.api.test_examples_schedule import STEPS

TEXTS = Path(__file__).parents[1] / "script" / "seeds"
SQUARES = np.random.default_rng(5).normal(0, 1, (2, 128, 128)).astype(np.float32)
ROW = X[:, :128].copy()


def published(name: str, constants: Sequence[np.ndarray] = ()) -> IRModule:
    """Parse a published text."""
    return parse((TEXTS / f"{name}.txt").read_text(), constants)


@pytest.mark.parametrize("name", ["mm_relu", "mm_relu_printed", "mm_relu_split", "mm_relu_decomposed"])
def test_tensor_functions(name: str):
    a, b = SQUARES
    c = np.full((128, 128), np.nan, np.float32)
    build(published(name))["mm_relu"](a, b, c)
    np.testing.assert_allclose(c, np.maximum(a @ b, 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "step"), [("mm_relu_printed", 0), ("mm_relu_split", 3), ("mm_relu_decomposed", 4)])
def test_the_published_steps_of_the_schedule_are_ours(name: str, step: int):
    func = published(name)["mm_relu"]
    assert isinstance(func, PrimFunc)
    attrs = {k: v for k, v in func.attrs.items() if k != "tir.noalias"}
    assert first_difference(PrimFunc(func.params, func.body, attrs), STEPS[step][0]) is None


def test_an_intermediate_value_among_the_parameters():
    a, b = SQUARES
    product, positive = np.empty_like(a), np.empty_like(a)
    mod = published("te_fused")
    build(mod)[next(iter(mod))](a, b, product, positive)
    np.testing.assert_allclose(product, a @ b, rtol=1e-4, atol=1e-4)
    assert np.array_equal(positive, np.maximum(product, 0))


OPERANDS = (X, W0, B0[None], W1, B1[None])


@pytest.mark.parametrize(
    ("name", "constants", "args"),
    [
        ("mlp_operators", (), OPERANDS),
        ("nn_operators", (), OPERANDS),
        ("high_level", (W0, B0, W1, B1), (X,)),
        ("mlp_call_tir", (), (X, *WEIGHTS.values())),
        ("mlp_extern", (), (X, *WEIGHTS.values())),
        ("mlp_mixture", (), (X, *WEIGHTS.values())),
        ("bound_parameters", (W0, B0, W1, B1), (X,)),
        ("bound_parameters_printed", (W0, B0, W1, B1), (X,)),
    ],
)
@pytest.mark.usefixtures("environment")
def test_perceptrons(name: str, constants: Sequence[np.ndarray], args: Sequence[np.ndarray]):
    check_mlp(published(name, constants), *args)


class OperatorLinear(nn.Module):
    """The published layer of operators; its bias has two axes."""

    def __init__(self, in_features: int, out_features: int):
        self.out_features = out_features
        self.weight = nn.Parameter((out_features, in_features))
        self.bias = nn.Parameter((1, out_features))

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return op.matmul(x, op.permute_dims(self.weight)) + self.bias


class ExpressionLinear(OperatorLinear):
    """The published layer as a tensor expression."""

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        def my_linear(x: te.Tensor, w: te.Tensor, b: te.Tensor) -> te.Tensor:
            k = te.reduce_axis((0, self.out_features), name="k")
            shape = (*x.shape[:-1], self.out_features)
            return te.compute(shape, fcompute=lambda i, j: te.sum(x[i, k] * w[j, k], axis=k), name="matmul")

        return op.tensor_expr_op(my_linear, "my_linear", [x, self.weight, self.bias])


class MLP(nn.Module):
    def __init__(self, layer: type[OperatorLinear]):
        self.linear1 = layer(784, 128)
        self.linear2 = layer(128, 10)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.linear2(op.relu(self.linear1(x)))


def plain(mod: IRModule) -> IRModule:
    """The module without function attributes."""
    return mod.updated({name: replace(func, attrs={}) for name, func in mod.functions.items()})


@pytest.mark.parametrize(("layer", "name"), [(OperatorLinear, "nn_operators"), (ExpressionLinear, "nn_emit_te")])
def test_modules_of_the_front_end_become_the_published_text(layer: type[OperatorLinear], name: str):
    net = MLP(layer)
    function = spec.Function(net.forward, {"input": spec.Tensor((1, 784))}, "plain")
    mod, parameters = net.export(spec.ModuleSpec({"main": function}))
    assert list(parameters) == ["linear1.weight", "linear1.bias", "linear2.weight", "linear2.bias"]
    assert first_difference(plain(mod), plain(published(name))) is None


def test_layers_that_sum_only_a_part():
    """The published tensor-expression layers reduce over ``out_features`` elements, and do not add the bias."""
    hidden = np.maximum(X[:, :128] @ W0[:, :128].T, 0)
    result = build(published("nn_emit_te"))["main"](*OPERANDS)
    np.testing.assert_allclose(result, hidden[:, :10] @ W1[:, :10].T, rtol=1e-4, atol=1e-5)


def test_operators_beside_a_tensor_function():
    hidden = np.maximum(X @ W0.T + B0, 0)
    result = build(published("emit_te"))["main"](*OPERANDS)
    np.testing.assert_allclose(result, hidden @ W1.T + B1, rtol=1e-4, atol=1e-5)


def test_functions_of_torch():
    weight = SQUARES[0]
    result = build(published("torch_functions", [weight]))["main"](ROW)
    np.testing.assert_allclose(result, np.maximum(ROW @ weight, 0), rtol=1e-4, atol=1e-4)


def test_matrix_product():
    a, b = SQUARES[0][:3, :4].copy(), SQUARES[1][:4, :5].copy()
    np.testing.assert_allclose(build(published("matmul_operator"))["main"](a, b), a @ b, rtol=1e-5, atol=1e-6)


def test_destination_passing_by_hand():
    """``call_tir`` is equivalent to allocating the result and passing it after the inputs."""
    lib = build(published("mlp_call_tir"))

    def call_tir(name: str, inputs: Sequence[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
        result = np.empty(shape, np.float32)
        lib[name](*inputs, result)
        return result

    lv0 = call_tir("linear0", (X, W0, B0), (1, 128))
    lv1 = call_tir("relu0", (lv0,), (1, 128))
    out = call_tir("linear1", (lv1, W1, B1), (1, 10))
    assert np.array_equal(out, lib["main"](X, *WEIGHTS.values()))
