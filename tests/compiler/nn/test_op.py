"""The operations of the front end: results against numpy or torch, and errors for invalid arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from mlc_compiler import T, nn, register_func, te
from mlc_compiler.interp import run_function
from mlc_compiler.nn import op, spec
from mlc_compiler.relax.ops import OperatorError
from mlc_runtime.arrays import tvm_ffi

RNG = np.random.default_rng(21)
X, Y = RNG.standard_normal((2, 2, 3, 4), np.float32)
ROW = RNG.standard_normal(4, np.float32)
IMAGE, KERNELS = RNG.standard_normal((1, 4, 5, 7), np.float32), RNG.standard_normal((4, 2, 5, 4), np.float32)
PLACES = np.array([[1, 0]], np.int32)
POSITIVE = np.abs(X) + np.float32(0.1)


def trace(f: Callable[..., Any], *args: np.ndarray, symbolic: bool = True) -> Any:
    """Trace ``f`` for arrays and return the interpreter's result; sizes 2 and 3 are symbolic."""
    sizes: dict[int, int | str] = {2: "n", 3: "m"} if symbolic else {}
    inputs = {f"x{i}": spec.Tensor([sizes.get(s, s) for s in a.shape], str(a.dtype)) for i, a in enumerate(args)}
    mod, _ = nn.Module().export(spec.ModuleSpec({"main": spec.Function(f, inputs, "none")}))
    return run_function(mod, "main", *args)


def logit(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def torch_of(name: str, **options: Any) -> Callable[..., np.ndarray]:
    return lambda *args: getattr(torch.nn.functional, name)(*map(torch.from_numpy, args), **options).numpy()


# for each operation: the call on tensors, the reference on arrays, the arrays
OPERATIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "add": (lambda x: op.add(1, x), lambda x: 1 + x, (X,)),
    "subtract": (lambda x: op.subtract(1.5, x), lambda x: np.float32(1.5) - x, (X,)),
    "multiply": (op.multiply, np.multiply, (X, ROW)),
    "divide": (op.divide, np.divide, (X, Y)),
    "power": (lambda x: op.power(x, 2), lambda x: x**2, (X,)),
    "maximum": (op.maximum, np.maximum, (X, Y)),
    "minimum": (lambda x: op.minimum(x, 0.5), lambda x: np.minimum(x, np.float32(0.5)), (X,)),
    "equal": (op.equal, np.equal, (PLACES, PLACES)),
    "not_equal": (op.not_equal, np.not_equal, (X, Y)),
    "less": (lambda x, y: op.less(x, y), lambda x, y: x < y, (X, Y)),
    "less_equal": (op.less_equal, np.less_equal, (X, X)),
    "greater": (lambda x: x > 0, lambda x: x > 0, (X,)),
    "greater_equal": (lambda x, y: x >= y, lambda x, y: x >= y, (X, Y)),
    "logical_and": (lambda x, y: op.logical_and(x > 0, y < 0), lambda x, y: (x > 0) & (y < 0), (X, Y)),
    "logical_or": (lambda x, y: op.logical_or(x >= 0, y <= 0), lambda x, y: (x >= 0) | (y <= 0), (X, Y)),
    "logical_not": (lambda x: op.logical_not(x > 0), lambda x: x <= 0, (X,)),
    "where": (
        lambda x, y: op.where(x > y, x, op.where(op.floor(x), y, 0)),
        lambda x, y: np.where(x > y, x, np.where(np.floor(x), y, np.float32(0))),
        (X, Y),
    ),
    "astype": (lambda x: op.astype(x * 9, "int8"), lambda x: (x * 9).astype("int8"), (X,)),
    "clip": (lambda x: op.clip(x, -0.5, 0.5), lambda x: x.clip(-0.5, 0.5), (X,)),
    **{n: (getattr(op, n), getattr(np, n), (X,)) for n in ("negative", "abs", "square", "exp", "sin", "cos", "floor")},
    **{n: (getattr(op, n), getattr(np, n), (X,)) for n in ("ceil", "round", "tanh")},
    **{n: (getattr(op, n), getattr(np, n), (POSITIVE,)) for n in ("sqrt", "log")},
    "rsqrt": (op.rsqrt, lambda x: 1 / np.sqrt(x), (POSITIVE,)),
    "erf": (op.erf, lambda x: torch.erf(torch.from_numpy(x)).numpy(), (X,)),
    "sigmoid": (op.sigmoid, logit, (X,)),
    "relu": (op.relu, torch_of("relu"), (X,)),
    "relu6": (lambda x: op.relu6(x * 9), lambda x: (x * 9).clip(0, 6), (X,)),
    "leaky_relu": (lambda x: op.leaky_relu(x, 0.2), torch_of("leaky_relu", negative_slope=0.2), (X,)),
    "silu": (op.silu, torch_of("silu"), (X,)),
    "gelu": (lambda x: op.gelu(x, "tanh"), torch_of("gelu", approximate="tanh"), (X,)),
    "softplus": (lambda x: op.softplus(x, 2.0), torch_of("softplus", beta=2.0), (X,)),
    "reshape": (lambda x: op.reshape(x, -1, 4), lambda x: x.reshape(-1, 4), (X,)),
    "permute_dims": (lambda x: op.permute_dims(x, (1, 2, 0)), lambda x: x.transpose(1, 2, 0), (X,)),
    "permute": (op.permute, np.transpose, (X,)),
    "expand_dims": (lambda x: op.expand_dims(x, (0, -1)), lambda x: x[None, ..., None], (X,)),
    "unsqueeze": (lambda x: op.unsqueeze(x, 1), lambda x: x[:, None], (X,)),
    "squeeze": (op.squeeze, lambda x: x[..., 0], (X[..., :1].copy(),)),
    "broadcast_to": (lambda x: op.broadcast_to(x, (5, 4)), lambda x: np.broadcast_to(x, (5, 4)), (ROW,)),
    "repeat": (lambda x: op.repeat(x, 2, 1), lambda x: np.repeat(x, 2, 1), (X,)),
    "tile": (lambda x: op.tile(x, (2, 1)), lambda x: np.tile(x, (2, 1)), (X,)),
    "split": (lambda x: op.split(x, [1], -1), lambda x: (x[..., :1], x[..., 1:]), (X,)),
    "chunk": (lambda x: op.chunk(x, 2, 2), lambda x: (x[..., :2], x[..., 2:]), (X,)),
    "concat": (lambda x, y: op.concat([x, y], dim=1), lambda x, y: np.concatenate([x, y], 1), (X, Y)),
    "stack": (lambda x, y: op.stack([x, y], 1), lambda x, y: np.stack([x, y], 1), (X, Y)),
    "flip": (lambda x: op.flip(x, -1), lambda x: np.flip(x, -1), (X,)),
    "pad": (lambda x: op.pad(x, [1, 2], value=9.0), lambda x: np.pad(x, (1, 2), constant_values=9), (ROW,)),
    "take": (lambda x, i: op.take(x, i, axis=2), lambda x, i: x.take(i, 2), (X, PLACES)),
    "gather_elements": (
        lambda x, i: op.gather_elements(x, i, 1),
        lambda x, i: x[:1, [1, 0]],
        (Y[0, :1].copy(), PLACES),
    ),
    "strided_slice": (lambda x: op.strided_slice(x, [2], [1], [4], [2]), lambda x: x[..., 1:4:2], (X,)),
    "triu": (lambda x: op.triu(x, 1), lambda x: np.triu(x, 1), (X,)),
    "tril": (op.tril, np.tril, (X,)),
    "full": (lambda x: x + op.full((4,), 3), lambda x: x + 3, (X,)),
    "zeros": (lambda x: x * op.zeros((4,)), lambda x: x * 0, (X,)),
    "ones": (lambda x: x + op.ones((4,)), lambda x: x + 1, (X,)),
    "empty": (lambda x: x * 0 + op.empty((4,)) * 0, lambda x: x * 0, (X,)),
    "arange": (lambda x: x + op.arange(4), lambda x: x + np.arange(4, dtype="f4"), (X,)),
    "sum": (lambda x: op.sum(x, [0, 2]), lambda x: x.sum((0, 2)), (X,)),
    "mean": (lambda x: op.mean(x, -1, keepdims=True), lambda x: x.mean(-1, keepdims=True), (X,)),
    "variance": (lambda x: op.variance(x, 1), lambda x: x.var(1), (X,)),
    "max": (lambda x: op.max(x, 0), lambda x: x.max(0), (X,)),
    "min": (op.min, lambda x: np.asarray(x.min()), (X,)),
    "prod": (lambda x: op.prod(x, 2), lambda x: x.prod(2), (X,)),
    "argmax": (op.argmax, lambda x: x.argmax(-1), (X,)),
    "argmin": (lambda x: op.argmin(x, 1, keepdims=True), lambda x: x.argmin(1, keepdims=True), (X,)),
    "cumsum": (lambda x: op.cumsum(x, 1), lambda x: x.cumsum(1), (X,)),
    "topk": (lambda x: op.topk(x, 2, ret_type="values"), lambda x: -np.sort(-x)[..., :2], (X,)),
    "sort": (lambda x: op.sort(x, 0, descending=True), lambda x: -np.sort(-x, 0), (X,)),
    "argsort": (op.argsort, lambda x: x.argsort().astype("int32"), (X,)),
    "linear": (op.linear, lambda x, w: x @ w.T, (X, Y[0])),
    "conv2d": (
        lambda x, w, b: op.conv2d(x, w, b, stride=2, padding=(1, 0), groups=2),
        torch_of("conv2d", stride=2, padding=(1, 0), groups=2),
        (IMAGE, KERNELS, ROW),
    ),
    "matmul": (lambda x, y: x @ op.permute_dims(y, (0, 2, 1)), lambda x, y: x @ y.transpose(0, 2, 1), (X, Y)),
    "rms_norm": (op.rms_norm, lambda x, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w, (X, ROW)),
    "layer_norm": (op.layer_norm, lambda x, w: torch_of("layer_norm", normalized_shape=(4,))(x) * w, (X, ROW)),
    "group_norm": (
        lambda x, w: op.group_norm(x, 2, w, channel_axis=2, axes=()),
        lambda x, w: torch_of("group_norm", num_groups=2)(x.reshape(6, 4)).reshape(x.shape) * w,
        (X, ROW),
    ),
    "softmax": (lambda x: op.softmax(x, 1), torch_of("softmax", dim=1), (X,)),
    "log_softmax": (op.log_softmax, torch_of("log_softmax", dim=-1), (X,)),
}
ELSEWHERE = {
    *("dequantize", "scaled_dot_product_attention", "print_", "debug_func"),
    *("dequantize_awq", "dequantize_blocks", "dequantize_ft"),  # tests/quantization/test_stored_layers.py
    *("extern", "tensor_expr_op", "tensor_ir_op", "tensor_ir_inplace_op"),
    *("filter_probabilities", "penalize", "sample_top_p", "softmax_with_temperature"),  # test_sampling*.py
    *("expert_linear", "expert_sum", "group_by_expert", "route"),  # test_mixture.py
}


def test_a_convolution_with_the_channels_last() -> None:
    last = IMAGE.transpose(0, 2, 3, 1).copy()
    got = trace(lambda x, w, b: op.conv2d(x, w, b, groups=2, data_layout="NHWC"), last, KERNELS, ROW)
    expected = torch_of("conv2d", groups=2)(IMAGE, KERNELS, ROW).transpose(0, 2, 3, 1)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_every_operation_has_a_case():
    assert set(op.__all__) - ELSEWHERE == set(OPERATIONS)


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name: str):
    ours, theirs, args = OPERATIONS[name]
    got, wanted = trace(ours, *args), theirs(*args)
    for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in (got, wanted)), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.5}])
@pytest.mark.parametrize("masked", [False, True])
def test_attention(options: dict[str, Any], masked: bool):
    q, k, v = (RNG.standard_normal((2, s, 3, 8), np.float32) for s in (5, 5, 5))
    mask = [RNG.standard_normal((2, 3, 5, 5), np.float32)] if masked and not options else []
    got = trace(
        lambda q, k, v, *m: op.scaled_dot_product_attention(q, k, v, *m, **options), q, k, v, *mask, symbolic=False
    )
    heads = (torch.from_numpy(x).transpose(1, 2) for x in (q, k, v))
    wanted = torch.nn.functional.scaled_dot_product_attention(*heads, *map(torch.from_numpy, mask), **options)
    np.testing.assert_allclose(got, wanted.transpose(1, 2).numpy(), rtol=1e-5, atol=1e-6)


def test_tensors_have_methods():
    got = trace(lambda x: x.reshape(x.shape[0], 12).permute_dims(1, 0).repeat(2, axis=0).astype("float16"), X)
    assert np.array_equal(got, X.reshape(2, 12).T.repeat(2, 0).astype("float16"))
    assert np.array_equal(trace(lambda x: x.permute_dims().reshape((-1,)), X), X.T.ravel())


def test_activations_and_norms_are_modules():
    class Net(nn.Module):
        def __init__(self) -> None:
            self.layers = nn.ModuleList([nn.ReLU(), nn.SiLU()])
            self.layers.append(nn.GELU("tanh"))
            self.layers[0] = nn.GELU()
            self.norm = nn.GroupNorm(2, 4)

        def forward(self, x: nn.Tensor) -> nn.Tensor:
            return self.norm(self.layers(x))

    net = Net()
    rows = X.reshape(6, 4)
    mod, params = net.export({"forward": {"x": spec.Tensor(("n", 4))}})
    weights = tuple(np.full(4, fill, np.float32) for fill in (2, 1))
    assert list(params) == ["norm.weight", "norm.bias"]
    f = torch.nn.functional
    wanted = f.gelu(f.silu(f.gelu(torch.from_numpy(rows))), approximate="tanh")
    wanted = f.group_norm(wanted, 2) * 2 + 1
    np.testing.assert_allclose(run_function(mod, "forward", rows, weights), wanted.numpy(), rtol=1e-4, atol=1e-5)


class OwnFunctions(nn.Module):
    def single(self, x: nn.Tensor, n: Any) -> nn.Tensor:
        out = nn.Tensor.placeholder((x.shape[0] * 2,), "float32")
        return op.extern("test.op.repeat", [x, n, 0.5, "mode"], out) + 1

    def several(self, x: nn.Tensor) -> tuple[nn.Tensor, ...]:
        low, high = op.extern("test.op.ends", [x], [((), "float32"), ((), "float32")])
        return high, low


def test_registered_functions():
    @register_func("test.op.repeat", override=True)
    def repeat(x: Any, n: int, factor: float, mode: str, out: Any) -> None:
        assert (n, mode) == (7, "mode")
        np.from_dlpack(out)[...] = np.from_dlpack(x).repeat(2) * factor

    @register_func("test.op.ends", override=True)
    def ends(x: Any, low: Any, high: Any) -> None:
        values = np.from_dlpack(x)
        np.from_dlpack(low)[...], np.from_dlpack(high)[...] = values.min(), values.max()

    try:
        functions = {"single": {"x": spec.Tensor(("k",)), "n": int}, "several": {"x": spec.Tensor(("k",))}}
        model = OwnFunctions().jit(functions, num_threads=2)
        assert model.several(ROW) == (ROW.max(), ROW.min())
        assert np.array_equal(model.single(ROW, 7), ROW.repeat(2) * np.float32(0.5) + 1)
    finally:
        tvm_ffi.remove_global_func("test.op.repeat")
        tvm_ffi.remove_global_func("test.op.ends")


def test_tensor_functions_with_placeholders():
    def double(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda i: x[i] * 2.0, name="double")

    @T.prim_func(private=True)
    def halve(x: T.Buffer((4,), "float32"), out: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("out"):
                vi = T.axis.spatial(4, i)
                out[vi] = x[vi] * T.float32(0.5)

    def compute(x: nn.Tensor) -> nn.Tensor:
        y = op.tensor_expr_op(double, "double", [op.tensor_expr_op(double, "double", [x])])
        return op.tensor_ir_op(halve, "halve", [y], nn.Tensor.placeholder((4,)))

    assert np.array_equal(trace(compute, ROW), ROW * 2)


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda x: op.relu([1, 2]), "nn.relu: x is a list; expected a Tensor or a number"),
        (lambda x: x + np.ones(4), "add: y is a ndarray; expected a Tensor or a number"),
        (lambda x: op.concat([x, "y"]), "concat: tensors is a str; expected a Tensor"),
        (lambda x: op.matmul(x, op.ones((5, 3))), r"matmul\(.*inner sizes of .*: got 4 and 5"),
        (lambda x: op.softmax(x, axis="last"), "nn.softmax"),
        (lambda x: op.gelu(x, "exact"), "approximate is 'exact'; expected 'tanh' or None"),
        (lambda x: op.pad(x, [1]), r"pad_width: got \[1\]; expected 6 numbers"),
        (lambda x: op.group_norm(x, 3, op.ones((4,)), channel_axis=2), "expected 3 equal groups of channels"),
        (lambda x: op.topk(x, 9), "k: got 9; expected at most 4"),
        (
            lambda x: op.extern("test.op.none", [[x]], ((), "int32")),
            "op.extern: test.op.none: got an argument of",
        ),
    ],
)
def test_invalid_arguments(f: Callable[..., Any], message: str):
    with pytest.raises(OperatorError, match=message):
        trace(f, X)


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ({"backward": {}}, "OwnFunctions has no method 'backward'"),
        ({"several": {"y": spec.Tensor((3,))}}, "several: got the arguments y; expected x"),
        ({"several": {}}, "several: got the arguments none; expected x"),
        ({"several": {"x": "n"}}, "several: x is 'n'; expected spec.Tensor, spec.Int, spec.Tuple, spec.Object"),
    ],
)
def test_invalid_specs(functions: Any, message: str):
    with pytest.raises(ValueError, match=message):
        OwnFunctions().export(functions)


def test_inputs_come_in_the_order_of_the_method():
    class Net(nn.Module):
        def forward(self, x: nn.Tensor, y: nn.Tensor, scale: float = 2.0) -> nn.Tensor:
            return x - y * scale

    mod, _ = Net().export({"forward": {"y": spec.Tensor((4,)), "x": spec.Tensor((4,)), "$": {"param_mode": "none"}}})
    assert [p.name for p in mod["forward"].params] == ["x", "y"]
    assert np.array_equal(run_function(mod, "forward", ROW, ROW), ROW - ROW * 2)
