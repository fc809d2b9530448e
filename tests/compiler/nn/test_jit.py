"""``Module.jit``: calls, sources of parameters, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from mlc_compiler import nn
from mlc_compiler.jit import CompiledModule
from mlc_compiler.nn import op, spec
from mlc_errors import MLCError

RNG = np.random.default_rng(8)
X = RNG.standard_normal((5, 7), np.float32)


class MLP(nn.Module):
    def __init__(self) -> None:
        self.linear1 = nn.Linear(7, 9)
        self.linear2 = nn.Linear(9, 3)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.linear2(op.relu(self.linear1(x)))

    def hidden(self, x: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
        h = op.relu(self.linear1(x))
        return h, op.sum(h, axis=-1)

    def double(self, n: Any) -> nn.Tensor:
        return op.full((n,), 2.0)


class TorchMLP(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear1 = torch.nn.Linear(7, 9)
        self.linear2 = torch.nn.Linear(9, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear2(torch.relu(self.linear1(x)))


ROWS = {"x": spec.Tensor(("n", 7))}
FUNCTIONS = {
    "forward": ROWS,
    "hidden": {**ROWS, "$": {"param_mode": "plain"}},
    "double": {"n": int, "$": {"param_mode": "none"}},
}


@pytest.fixture(scope="module")
def other() -> TorchMLP:
    torch.manual_seed(0)
    return TorchMLP()


@pytest.fixture(scope="module")
def weights(other: TorchMLP) -> dict[str, np.ndarray]:
    return {name: value.numpy().copy() for name, value in other.state_dict().items()}


@pytest.fixture(scope="module")
def model(weights: dict[str, np.ndarray]) -> CompiledModule:
    return MLP().jit(FUNCTIONS, params=weights, num_threads=2)


def test_functions_with_bound_parameters(other: TorchMLP, model: CompiledModule):
    wanted = other(torch.from_numpy(X)).detach().numpy()
    for result in (model["forward"](X), model.forward(torch.from_numpy(X))):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)
    hidden, total = model.hidden(X[:2])
    np.testing.assert_allclose(total, hidden.sum(-1), rtol=1e-5)
    assert model["double"](3).tolist() == [2, 2, 2]
    assert sorted(model.mod) == ["double", "forward", "hidden"] and set(model.mod) <= set(model.library.functions)


def test_weights_are_put_in_the_layout_of_the_kernels_once(weights: dict[str, np.ndarray], model: CompiledModule):
    packed = model.weights["linear1.weight"]
    assert list(packed.shape) != [9, 7] and list(model.weights["linear1.bias"].shape) == [9]
    assert sorted(model.weights) == sorted(weights)
    assert np.isin(weights["linear1.weight"], np.from_dlpack(packed)).all()


def test_parameters_hold_data(other: TorchMLP, weights: dict[str, np.ndarray]):
    net, wanted = MLP(), other(torch.from_numpy(X)).detach().numpy()
    assert net.load_state_dict(other.state_dict()) == ([], [])
    np.testing.assert_allclose(net.jit({"forward": ROWS}).forward(X), wanted, rtol=1e-5, atol=1e-6)
    copy = MLP()
    copy.load_state_dict(net.state_dict())
    copy.linear2.bias.data = weights["linear2.bias"] + 1
    given = copy.jit({"forward": ROWS}, params={"linear2.weight": np.zeros((3, 9), np.float32)})
    np.testing.assert_allclose(given.forward(X[:1]), weights["linear2.bias"][None] + 1, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_parameters_of_narrow_types(other: TorchMLP, dtype: torch.dtype):
    state = {name: value.to(dtype) for name, value in other.state_dict().items()}
    net = MLP().to(str(dtype).removeprefix("torch."))
    net.load_state_dict(state)
    wide = TorchMLP()
    wide.load_state_dict({name: value.float() for name, value in state.items()})
    wanted = wide(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(net.jit({"forward": ROWS}).forward(X), wanted, rtol=1e-5, atol=1e-5)


def test_strides_and_scalars():
    class Scaled(nn.Module):
        def __init__(self) -> None:
            self.scale = nn.Parameter(())
            self.table = nn.Parameter((2, 3))

        def forward(self, x: nn.Tensor) -> nn.Tensor:
            return op.matmul(x, self.table) * self.scale

    net, table = Scaled(), np.arange(6, dtype=np.float32).reshape(3, 2)
    net.load_state_dict({"scale": np.array(0.5, np.float32), "table": table.T})
    assert net.scale.data.shape == ()
    x = np.ones((1, 2), np.float32)
    assert np.array_equal(net.jit({"forward": {"x": spec.Tensor((1, 2))}}).forward(x), x @ table.T * 0.5)


def test_parameters_without_data(weights: dict[str, np.ndarray]):
    del (some := dict(weights))["linear2.bias"]
    with pytest.raises(nn.ParameterError, match=r"^jit: linear2.bias has no data") as error:
        MLP().jit({"forward": ROWS}, params=some)
    assert error.value.hint == "set its data, call load_state_dict, or give params={name: array}"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("linear3.bias", np.ones(3), r"jit: no parameter 'linear3.bias'; the module has linear1.weight, linear1."),
        ("linear1.weight", np.ones((7, 9), "f4"), r"linear1.weight got float32 \[7, 9\]; expected float32 \[9, 7\]"),
        ("linear2.bias", np.ones(3), r"linear2.bias got float64 \[3\]; expected float32 \[3\]"),
        ("linear2.bias", torch.ones(3).half(), r"linear2.bias got float16 \[3\]; expected float32 \[3\]"),
        ("linear2.bias", [1, 2, 3], r"linear2.bias got list; expected an array float32 \[3\]"),
        ("linear2.bias", torch.ones(6)[::2], r"'linear2.bias' has strides \[2\], it is not contiguous"),
    ],
)
def test_mismatched_data(weights: dict[str, np.ndarray], name: str, value: Any, message: str):
    with pytest.raises((nn.ParameterError, MLCError), match=message):
        MLP().jit({"forward": ROWS}, params={**weights, name: value})


def test_mismatched_states(weights: dict[str, np.ndarray]):
    net, state = MLP(), {**weights, "linear3.bias": np.ones(3)}
    del state["linear1.bias"]
    with pytest.raises(nn.ParameterError, match="missing linear1.bias; unexpected linear3.bias"):
        net.load_state_dict(state)
    with pytest.raises(nn.ParameterError, match=r"load_state_dict: linear2.bias got float64"):
        net.load_state_dict({**weights, "linear2.bias": np.ones(3)})
    assert all(p.data is None for p in net.parameters())
    assert net.load_state_dict(state, strict=False) == (["linear1.bias"], ["linear3.bias"])
    with pytest.raises(nn.ParameterError, match=r"parameter got float32 \[4\]; expected float32 \[3\]"):
        net.linear2.bias.data = np.ones(4, np.float32)
    with pytest.raises(nn.ParameterError, match="a parameter with float32 data cannot become float16"):
        net.to("float16")


def test_mismatched_calls(model: CompiledModule):
    with pytest.raises(ValueError, match=r"forward got 2 arguments; expected 1 \(x\)"):
        model.forward(X, X)
    with pytest.raises(ValueError, match=r"forward: argument 'x' has shape \[5, 6\]; expected float32 \[n, 7\]"):
        model.forward(np.ones((5, 6), np.float32))
    with pytest.raises(ValueError, match="no function 'backward'; it has forward, hidden, double"):
        model["backward"]
    with pytest.raises(AttributeError, match="no function 'backward'"):
        model.backward(X)
