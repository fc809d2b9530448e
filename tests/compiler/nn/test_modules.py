import numpy as np
import pytest

from mlc_compiler import build, nn
from mlc_compiler.interp import run_function
from mlc_compiler.ir.structural import first_difference
from mlc_compiler.nn import op, spec
from mlc_compiler.nn.tensor import ParameterError
from mlc_compiler.relax.builder import BlockBuilder, BuilderError, tensor_var
from mlc_compiler.relax.nodes import TupleStructInfo
from mlc_compiler.script import parse, script

RNG = np.random.default_rng(3)


class Gate(nn.Module):
    def __init__(self, size, inner):
        self.up = nn.Linear(size, 2 * inner)
        self.down = nn.Linear(inner, size, bias=False)

    def forward(self, x):
        a, b = op.split(self.up(x), 2, axis=-1)
        return self.down(op.silu(a) * b)


class Net(nn.Module):
    def __init__(self):
        self.table = nn.Embedding(11, 6)
        self.layers = nn.ModuleList([Gate(6, 4) for _ in range(2)])
        self.norm = nn.RMSNorm(6, 1e-5)

    def forward(self, ids):
        x = self.table(ids).astype("float32")
        for layer in self.layers:
            x = x + layer(x)
        return self.table.lm_head_forward(self.norm(x))


NAMES = [
    "table.weight",
    "layers.0.up.weight",
    "layers.0.up.bias",
    "layers.0.down.weight",
    "layers.1.up.weight",
    "layers.1.up.bias",
    "layers.1.down.weight",
    "norm.weight",
]


def exported(mode="packed", net=None):
    net = net or Net()
    mod, params = net.export({"forward": {"ids": spec.Tensor(["n"], "int32"), "$": {"param_mode": mode}}})
    assert first_difference(parse(script(mod)), mod) is None
    return mod, params


def weights_for(params):
    return [(RNG.standard_normal(p.shape) / 2).astype(p.dtype) for p in params.values()]


def reference(ids, w):
    w = [a.astype(np.float32) for a in w]
    x = w[0][ids]
    for up, bias, down in (w[1:4], w[4:7]):
        a, b = np.split(x @ up.T + bias, 2, axis=-1)
        x = x + (a / (1 + np.exp(-a)) * b) @ down.T
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * w[7]
    return x @ w[0].T


def test_parameters_are_found_in_order_of_definition():
    assert [name for name, _ in Net().named_parameters()] == NAMES


def test_a_parameter_that_occurs_twice_is_listed_once():
    net = Net()
    net.layers[1].up.weight = net.layers[0].up.weight
    assert "layers.1.up.weight" not in dict(net.named_parameters())
    mod, params = exported(net=net)
    assert len(mod["forward"].params[-1].struct_info.fields) == len(params) == 7


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_packed_parameters(dtype):
    net = Net()
    net.to(dtype)
    mod, params = exported(net=net)
    assert {p.dtype for p in params.values()} == {dtype}
    info = mod["forward"].params[-1].struct_info
    assert isinstance(info, TupleStructInfo)
    ids, weights = np.array([3, 10, 0], np.int32), weights_for(params)
    got = run_function(mod, "forward", ids, tuple(weights))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, reference(ids, weights), rtol=2e-4, atol=2e-4)


def test_plain_parameters():
    mod, params = exported("plain")
    assert [p.name for p in mod["forward"].params] == ["ids", *(n.replace(".", "_") for n in NAMES)]
    ids, weights = np.array([1], np.int32), weights_for(params)
    np.testing.assert_allclose(
        run_function(mod, "forward", ids, *weights), reference(ids, weights), rtol=2e-4, atol=2e-4
    )


def test_attributes_of_an_exported_function():
    def double(x):
        return x * 2

    bounds = {"n": 64, "unused": 3}
    function = spec.Function(double, {"x": spec.Tensor(["n", 4])}, "none", bounds)
    mod, _ = Net().export(spec.ModuleSpec({"double": function}))
    assert mod["double"].attrs == {"global_symbol": "double", "num_input": 1, "tir_var_upper_bound": {"n": 64}}
    assert mod["double"].is_pure


def test_symbolic_integers_and_several_results():
    class Shapes(nn.Module):
        def make(self, n, x):
            return op.zeros((n, 2)), op.concat([x, x + 1.0], axis=0)

    mod, _ = Shapes().export({"make": {"n": int, "x": spec.Tensor(["m"]), "$": {"param_mode": "none"}}})
    zeros, twice = run_function(mod, "make", 3, np.zeros(2, np.float32))
    assert zeros.shape == (3, 2)
    assert list(twice) == [0, 0, 1, 1]


def test_replacing_a_module():
    net = Net()
    net.replace("layers.1.up", nn.Linear(6, 8, bias=False))
    assert net.layers[1].up.bias is None
    net.replace("norm", nn.LayerNorm(6))
    assert [n for n, _ in net.named_parameters()][-2:] == ["norm.weight", "norm.bias"]
    with pytest.raises(ParameterError, match="replace: no module 'layers.9'; there are .*layers.1"):
        net.replace("layers.9", nn.LayerNorm(6))


def test_a_parameter_has_no_value_outside_of_a_trace():
    net = Net()
    exported(net=net)
    with pytest.raises(BuilderError, match="no function is being built"):
        _ = net.norm.weight.expr


def test_arithmetic_of_tensors():
    def compute(x):
        return (1 - x) / (2 + x * x) - x / 4 + -x

    mod, _ = Net().export(spec.ModuleSpec({"f": spec.Function(compute, {"x": spec.Tensor([5])}, "none")}))
    x = RNG.standard_normal(5).astype(np.float32)
    np.testing.assert_allclose(run_function(mod, "f", x), (1 - x) / (2 + x * x) - x / 4 - x, rtol=1e-5)


def test_unknown_options_of_a_spec():
    with pytest.raises(ValueError, match="expected param_mode, upper_bounds"):
        Net().export({"forward": {"ids": spec.Tensor(["n"], "int32"), "$": {"mode": "packed"}}})
    with pytest.raises(ValueError, match="expected one of packed, plain, none"):
        Net().export({"forward": {"ids": spec.Tensor(["n"], "int32"), "$": {"param_mode": "boxed"}}})


def test_modules_are_called_in_functions_of_a_builder():
    layer, bb = nn.Linear(3, 2), BlockBuilder()
    x = tensor_var("x", (4, 3))
    with bb.function("main"):
        y = layer(nn.Tensor(x))
        bb.emit_func_output(y.expr, [x, *(p.variable for p in layer.parameters())])
    arrays = [np.random.default_rng(0).normal(size=s).astype(np.float32) for s in ((4, 3), (2, 3), (2,))]
    x_, w, b = arrays
    np.testing.assert_allclose(build(bb.get())["main"](*arrays), x_ @ w.T + b, rtol=1e-5, atol=1e-6)


def test_a_function_of_a_builder_must_have_the_parameters_it_uses():
    layer, bb = nn.Linear(3, 2), BlockBuilder()
    x = tensor_var("x", (4, 3))
    with pytest.raises(BuilderError, match="function main: param is not among its parameters"), bb.function("main"):
        bb.emit_func_output(layer(nn.Tensor(x)).expr, [x])


class Tied(nn.Module):
    """A tied embedding with a vocabulary of symbolic size, and a separate head of another size."""

    def __init__(self):
        self.table = nn.Embedding("vocab_size", 6)
        self.head = nn.Linear(6, "classes", bias=False)

    def forward(self, ids):
        x = self.table(ids)
        return self.table.lm_head_forward(x), self.head(x)


@pytest.mark.parametrize("param_mode", ["plain", "packed"])
def test_symbolic_sizes_of_parameters(param_mode):
    inputs = {"ids": spec.Tensor(["n"], "int32"), "$": {"param_mode": param_mode}}
    mod, parameters = Tied().export({"forward": inputs})
    assert [str(p.shape) for p in parameters.values()] == ["[vocab_size, 6]", "[classes, 6]"]
    rng = np.random.default_rng(1)
    table, head = (rng.normal(size=s).astype(np.float32) for s in ((11, 6), (4, 6)))
    ids = np.array([10, 3, 3], np.int32)
    weights = (table, head) if param_mode == "plain" else ((table, head),)
    tied, classes = build(mod)["forward"](ids, *weights)
    np.testing.assert_allclose(tied, table[ids] @ table.T, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(classes, table[ids] @ head.T, rtol=1e-5, atol=1e-5)


def test_data_of_a_parameter_with_a_symbolic_size():
    weight = Tied().table.weight
    weight.data = np.zeros((9, 6), np.float32)
    with pytest.raises(ParameterError, match=r"got float32 \[9, 5\]; expected float32 \[vocab_size, 6\]"):
        weight.data = np.zeros((9, 5), np.float32)


class Pair(nn.Module):
    def forward(self, x, pair):
        first, second = pair
        return op.matmul(first, second) + x, first


def test_inputs_that_are_tuples():
    inputs = {"x": spec.Tensor(["n", 5]), "pair": spec.Tuple([spec.Tensor(["n", 3]), spec.Tensor([3, 5])])}
    mod, _ = Pair().export({"forward": {**inputs, "$": {"param_mode": "none"}}})
    assert isinstance(mod["forward"].params[1].struct_info, TupleStructInfo)
    rng = np.random.default_rng(2)
    x, a, b = (rng.normal(size=s).astype(np.float32) for s in ((2, 5), (2, 3), (3, 5)))
    total, first = build(mod)["forward"](x, (a, b))
    np.testing.assert_allclose(total, a @ b + x, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(first, a)
