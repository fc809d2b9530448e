"""Modules made from Python: tensor expressions, BlockBuilder, nn modules, a torch graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import fx

from mlc_compiler import (
    BlockBuilder,
    IRModule,
    T,
    build,
    constant,
    nn,
    ops,
    parse,
    structural_equal,
    te,
    tensor_var,
    to_script,
)
from mlc_compiler.nn import op, spec
from tests.compiler.api.mlp import B0, B1, EXPECTED, HIDDEN, INPUTS, OUTPUTS, W0, W1, WEIGHTS, X, check_mlp


def te_matmul(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, a.shape[1]), name="k")
    return te.compute((a.shape[0], b.shape[1]), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="matmul")


def te_relu(a: te.Tensor) -> te.Tensor:
    return te.compute(a.shape, lambda *i: te.max(a(*i), 0), name="relu")


def te_linear(x: te.Tensor, w: te.Tensor, b: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, x.shape[1]), name="k")
    total = te.compute((x.shape[0], w.shape[0]), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k), name="matmul")
    return te.compute(total.shape, lambda i, j: total[i, j] + b[j], name="add_bias")


# -- tensor expressions ------------------------------------------------------------------------------------------------

PRINTED = """
@T.prim_func(private=True)
def main(A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32"), relu: T.Buffer((128, 128), "float32")):
    T.func_attr({"tir.noalias": True, "num_outputs": 1})
    # with T.block("root"):
    matmul = T.alloc_buffer((128, 128), "float32")
    for i0, i1, k in T.grid(128, 128, 128):
        with T.block("matmul"):
            v_i0, v_i1, v_k = T.axis.remap("SSR", [i0, i1, k])
            T.reads(A[v_i0, v_k], B[v_k, v_i1])
            T.writes(matmul[v_i0, v_i1])
            with T.init():
                matmul[v_i0, v_i1] = T.float32(0.0)
            matmul[v_i0, v_i1] = matmul[v_i0, v_i1] + A[v_i0, v_k] * B[v_k, v_i1]
    for i0, i1 in T.grid(128, 128):
        with T.block("relu"):
            v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
            T.reads(matmul[v_i0, v_i1])
            T.writes(relu[v_i0, v_i1])
            relu[v_i0, v_i1] = T.max(matmul[v_i0, v_i1], T.float32(0.0))
"""


def expressions() -> list[te.Tensor]:
    """Two inputs, their product, and its ReLU."""
    a, b = (te.placeholder((128, 128), "float32", name=n) for n in "AB")
    product = te_matmul(a, b)
    return [a, b, product, te_relu(product)]


def test_tensor_expressions_become_tensor_functions():
    a, b, product, positive = expressions()
    fused = te.create_prim_func([a, b, positive])
    assert structural_equal(fused, parse(PRINTED)["main"])
    assert [buffer.name for buffer in te.create_prim_func([a, b, product]).buffers] == ["A", "B", "matmul"]
    both = te.create_prim_func([a, b, product, positive])
    assert [buffer.name for buffer in both.buffers] == ["A", "B", "matmul", "relu"]
    x, y = np.random.default_rng(0).integers(-8, 9, (2, 128, 128)).astype(np.float32)  # sums are exact in any order
    total, result, again = (np.empty_like(x) for _ in range(3))
    build(both)["main"](x, y, total, result)
    build(fused.with_attr("global_symbol", "mm_relu"))["mm_relu"](x, y, again)
    np.testing.assert_array_equal(total, x @ y)
    np.testing.assert_array_equal(result, np.maximum(total, 0))
    np.testing.assert_array_equal(again, result)


def test_expressions_and_script_give_the_same_function():
    a, b = (te.placeholder((128, 128), "float32", name=n) for n in "AB")
    k = te.reduce_axis((0, 128), "k")
    y = te.compute((128, 128), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="Y")
    c = te.compute((128, 128), lambda i, j: te.max(y[i, j], 0), name="C")

    @T.prim_func
    def mm_relu(
        A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32")
    ):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        Y = T.alloc_buffer((128, 128), "float32")
        for i, j, k in T.grid(128, 128, 128):
            with T.block("Y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    Y[vi, vj] = T.float32(0)
                Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
        for i, j in T.grid(128, 128):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.max(Y[vi, vj], T.float32(0))

    assert structural_equal(te.create_prim_func([a, b, c], name="mm_relu"), mm_relu)


# -- BlockBuilder ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_block_builder_with_tensor_expressions(when: str):
    a, b = tensor_var("A", (128, 128)), tensor_var("B", (128, 128))
    bb = BlockBuilder()
    with bb.function("main", [a, b] if when == "before" else []):
        with bb.dataflow():
            c = bb.emit_te(te_matmul, a, b)
            d = bb.emit_te(te_relu, c)
            r = bb.emit_output(d)
        bb.emit_func_output(r, params=[a, b] if when == "after" else ())
    mod = bb.get()
    assert list(mod) == ["te_matmul", "te_relu", "main"]
    assert "R.call_tir(cls.te_matmul, (A, B), out_sinfo=R.Tensor((128, 128)" in to_script(mod)
    x, y = np.random.default_rng(1).normal(0, 1, (2, 128, 128)).astype(np.float32)
    np.testing.assert_allclose(build(mod)["main"](x, y), np.maximum(x @ y, 0), rtol=1e-4, atol=1e-4)


def layers(emit_linear: Callable[..., Any], emit_relu: Callable[..., Any]) -> IRModule:
    """The perceptron, built by ``emit_linear(bb, x, w, b)`` and ``emit_relu(bb, x)``."""
    params = [
        *(tensor_var("x", (1, INPUTS)), tensor_var("w0", W0.shape), tensor_var("b0", B0.shape)),
        *(tensor_var("w1", W1.shape), tensor_var("b1", B1.shape)),
    ]
    x, w0, b0, w1, b1 = params
    bb = BlockBuilder()
    with bb.function("main", params):
        with bb.dataflow():
            hidden = emit_relu(bb, emit_linear(bb, x, w0, b0))
            out = bb.emit_output(emit_linear(bb, hidden, w1, b1))
        bb.emit_func_output(out)
    return bb.get()


def test_the_perceptron_from_tensor_expressions():
    mod = layers(
        lambda bb, x, w, b: bb.emit_te(te_linear, x, w, b), lambda bb, x: bb.emit_te(te_relu, x, name_hint="positive")
    )
    assert list(mod) == ["te_linear", "positive", "te_linear1", "main"]
    check_mlp(mod, X, *WEIGHTS.values())


def test_the_perceptron_from_operators():
    def linear(bb: BlockBuilder, x: Any, w: Any, b: Any) -> Any:
        return bb.emit(ops.add(ops.matmul(x, bb.emit(ops.permute_dims(w))), b))

    mod = layers(linear, lambda bb, x: bb.emit(ops.relu(x)))
    assert list(mod) == ["main"]
    check_mlp(mod, X, *WEIGHTS.values())


# -- nn ----------------------------------------------------------------------------------------------------------------


class TransposedLinear(nn.Module):
    """A custom layer, built from operators."""

    def __init__(self, in_features: int, out_features: int):
        self.weight = nn.Parameter((out_features, in_features))
        self.bias = nn.Parameter((out_features,))

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return op.matmul(x, op.permute_dims(self.weight)) + self.bias


class ExpressionLinear(TransposedLinear):
    """A custom layer, built from a tensor expression."""

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return op.tensor_expr_op(te_linear, "my_linear", [x, self.weight, self.bias])


class MLP(nn.Module):
    def __init__(self, layer: type[nn.Module]):
        self.linear1 = layer(INPUTS, HIDDEN)
        self.linear2 = layer(HIDDEN, OUTPUTS)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.linear2(op.relu(self.linear1(x)))


@pytest.mark.parametrize(
    ("layer", "param_mode"),
    [(nn.Linear, "plain"), (TransposedLinear, "plain"), (ExpressionLinear, "plain"), (ExpressionLinear, "packed")],
)
def test_the_perceptron_from_nn_modules(layer: type[nn.Module], param_mode: str):
    inputs = {"x": spec.Tensor(("n", INPUTS)), "$": {"param_mode": param_mode}}
    mod, parameters = MLP(layer).export({"forward": inputs})
    assert list(parameters) == ["linear1.weight", "linear1.bias", "linear2.weight", "linear2.bias"]
    assert ("my_linear" in mod) == (layer is ExpressionLinear)
    weights = list(WEIGHTS.values())
    arguments = weights if param_mode == "plain" else [weights]
    lib = check_mlp(mod, X, *arguments, name="forward")
    rows = lib["forward"](np.repeat(X, 5, 0), *arguments)
    np.testing.assert_allclose(rows, np.repeat(EXPECTED, 5, 0), rtol=1e-4, atol=1e-5)


# -- from torch --------------------------------------------------------------------------------------------------------

Rule = Callable[..., Any]


def from_fx(
    graph: fx.GraphModule, shapes: Sequence[tuple[int, ...]], functions: dict[Any, Rule], modules: dict[Any, Rule]
) -> IRModule:
    """A module from a torch.fx graph, converted node by node; weights become constants."""
    bb, values, inputs = BlockBuilder(), {}, []
    named = dict(graph.named_modules())
    with bb.function("main"):
        with bb.dataflow():
            for node in graph.graph.nodes:
                if node.op == "placeholder":
                    inputs.append(tensor_var(node.target, shapes[len(inputs)]))
                    values[node] = inputs[-1]
                elif node.op == "get_attr":
                    values[node] = constant(getattr(graph, node.target).detach().numpy())
                elif node.op == "call_function":
                    values[node] = functions[node.target](bb, *(values[a] for a in node.args))
                elif node.op == "call_module":
                    layer = named[node.target]
                    values[node] = modules[type(layer)](bb, layer, *(values[a] for a in node.args))
                elif node.op == "output":
                    result = bb.emit_output(values[node.args[0]])
        bb.emit_func_output(result, inputs)
    return bb.get()


def test_a_torch_graph_of_functions():
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(128, 128, generator=torch.Generator().manual_seed(0)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(torch.matmul(x, self.weight))

    model = Model()
    rules = {
        torch.matmul: lambda bb, a, b: bb.emit_te(te_matmul, a, b),
        torch.relu: lambda bb, a: bb.emit_te(te_relu, a),
    }
    mod = from_fx(fx.symbolic_trace(model), [(1, 128)], rules, {})
    x = np.random.default_rng(2).normal(0, 1, (1, 128)).astype(np.float32)
    expected = model(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(build(mod)["main"](x), expected, rtol=1e-4, atol=1e-4)


def te_layer(bb: BlockBuilder, layer: Any, x: Any) -> Any:
    return bb.emit_te(te_linear, x, constant(layer.weight.detach().numpy()), constant(layer.bias.detach().numpy()))


def operator_layer(bb: BlockBuilder, layer: Any, x: Any) -> Any:
    weight, bias = (constant(p.detach().numpy()) for p in (layer.weight, layer.bias))
    return bb.emit(ops.add(bb.emit(ops.linear(x, weight)), bias))


@pytest.mark.parametrize("linear", [te_layer, operator_layer])
def test_a_torch_graph_of_modules(linear: Rule):
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear0 = torch.nn.Linear(INPUTS, HIDDEN)
            self.relu = torch.nn.ReLU()
            self.linear1 = torch.nn.Linear(HIDDEN, OUTPUTS)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear1(self.relu(self.linear0(x)))

    model = Model()
    names = ("linear0.weight", "linear0.bias", "linear1.weight", "linear1.bias")
    model.load_state_dict({n: torch.from_numpy(w) for n, w in zip(names, WEIGHTS.values())})
    rules = {torch.nn.Linear: linear, torch.nn.ReLU: lambda bb, layer, x: bb.emit(ops.relu(x))}
    check_mlp(from_fx(fx.symbolic_trace(model), [(1, INPUTS)], {}, rules), X)
