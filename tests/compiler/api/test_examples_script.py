"""Modules written as script: operators, tensor functions, registered functions, bound parameters."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mlc_compiler import (
    I,
    IRModule,
    R,
    Schedule,
    T,
    bind_params,
    build,
    parse,
    structural_equal,
    to_script,
)
from mlc_compiler.relax.bind_params import BindError
from mlc_compiler.script import to_text
from mlc_errors import MLCError
from tests.compiler.api.mlp import B0, B1, EXPECTED, W0, W1, WEIGHTS, X, check_mlp


@I.ir_module
class Product:
    @R.function
    def main(A: R.Tensor((3, 4), "float32"), B: R.Tensor((4, 5), "float32")) -> R.Tensor((3, 5), "float32"):
        with R.dataflow():
            lv: R.Tensor((3, 5), dtype="float32") = R.matmul(A, B, out_dtype="void")
            R.output(lv)
        return lv


def test_one_operator():
    a, b = np.random.default_rng(0).random((3, 4), np.float32), np.random.default_rng(1).random((4, 5), np.float32)
    np.testing.assert_allclose(build(Product)["main"](a, b), a @ b, rtol=1e-6)


@I.ir_module
class Operators:
    @R.function
    def main(
        inp: R.Tensor((1, 784), "float32"),
        weight1: R.Tensor((128, 784), "float32"),
        bias1: R.Tensor((1, 128), "float32"),
        weight2: R.Tensor((10, 128), "float32"),
        bias2: R.Tensor((1, 10), "float32"),
    ) -> R.Tensor((1, 10), "float32"):
        with R.dataflow():
            lv: R.Tensor((784, 128), "float32") = R.permute_dims(weight1, axes=None)
            lv1: R.Tensor((1, 128), "float32") = R.matmul(inp, lv, out_dtype="void")
            lv2: R.Tensor((1, 128), "float32") = R.add(lv1, bias1)
            lv3: R.Tensor((1, 128), "float32") = R.nn.relu(lv2)
            lv4: R.Tensor((128, 10), "float32") = R.permute_dims(weight2, axes=None)
            lv5: R.Tensor((1, 10), "float32") = R.matmul(lv3, lv4, out_dtype="void")
            lv6: R.Tensor((1, 10), "float32") = R.add(lv5, bias2)
            R.output(lv6)
        return lv6


def test_operators():
    check_mlp(Operators, X, W0, B0[None], W1, B1[None])


@I.ir_module
class Mixed:
    """A module in which one product is a tensor function, and the rest are operators."""

    @T.prim_func
    def tir_matmul(
        X: T.Buffer((T.int64(1), T.int64(784)), "float32"),
        W: T.Buffer((T.int64(784), T.int64(128)), "float32"),
        out: T.Buffer((T.int64(1), T.int64(128)), "float32"),
    ):
        T.func_attr({"tir.noalias": True})
        for i0, i1, k in T.grid(T.int64(1), T.int64(128), T.int64(784)):
            with T.block("matmul"):
                v_i0, v_i1, v_k = T.axis.remap("SSR", [i0, i1, k])
                T.reads(X[v_i0, v_k], W[v_k, v_i1])
                T.writes(out[v_i0, v_i1])
                with T.init():
                    out[v_i0, v_i1] = T.float32(0)
                out[v_i0, v_i1] = out[v_i0, v_i1] + X[v_i0, v_k] * W[v_k, v_i1]

    @R.function
    def main(
        inp: R.Tensor((1, 784), "float32"),
        weight1: R.Tensor((128, 784), "float32"),
        bias1: R.Tensor((1, 128), "float32"),
        weight2: R.Tensor((10, 128), "float32"),
        bias2: R.Tensor((1, 10), "float32"),
    ) -> R.Tensor((1, 10), "float32"):
        cls = Mixed
        with R.dataflow():
            lv: R.Tensor((784, 128), "float32") = R.permute_dims(weight1, axes=None)
            lv1 = R.call_tir(cls.tir_matmul, [inp, lv], out_sinfo=R.Tensor((1, 128), "float32"))
            lv2: R.Tensor((1, 128), "float32") = R.add(lv1, bias1)
            lv3: R.Tensor((1, 128), "float32") = R.nn.relu(lv2)
            lv4: R.Tensor((128, 10), "float32") = R.permute_dims(weight2, axes=None)
            lv5: R.Tensor((1, 10), "float32") = R.matmul(lv3, lv4, out_dtype="float32")
            gv: R.Tensor((1, 10), "float32") = R.add(lv5, bias2)
            R.output(gv)
        return gv


def test_operators_and_a_tensor_function():
    lib = check_mlp(Mixed, X, W0, B0[None], W1, B1[None])
    out = np.empty((1, 128), np.float32)
    lib["tir_matmul"](X, W0.T.copy(), out)
    np.testing.assert_allclose(out, X @ W0.T, rtol=1e-4, atol=1e-5)


LINEAR0 = """
    @T.prim_func
    def linear0(X: T.Buffer((1, 784), "float32"), W: T.Buffer((128, 784), "float32"),
                B: T.Buffer((128,), "float32"), Z: T.Buffer((1, 128), "float32")):
        T.func_attr({"global_symbol": "linear0", "tir.noalias": True})
        Y = T.alloc_buffer((1, 128), "float32")
        for i, j, k in T.grid(1, 128, 784):
            with T.block("Y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    Y[vi, vj] = T.float32(0)
                Y[vi, vj] = Y[vi, vj] + X[vi, vk] * W[vj, vk]
        for i, j in T.grid(1, 128):
            with T.block("Z"):
                vi, vj = T.axis.remap("SS", [i, j])
                Z[vi, vj] = Y[vi, vj] + B[vj]
"""
LINEAR1 = LINEAR0.replace("128", "OUT").replace("784", "128").replace("OUT", "10").replace("linear0", "linear1")
RELU0 = """
    @T.prim_func
    def relu0(X: T.Buffer((1, 128), "float32"), Y: T.Buffer((1, 128), "float32")):
        T.func_attr({"global_symbol": "relu0", "tir.noalias": True})
        for i, j in T.grid(1, 128):
            with T.block("Y"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = T.max(X[vi, vj], T.float32(0))
"""
MAIN = """
    @R.function
    def main(x: R.Tensor((1, 784), "float32"), w0: R.Tensor((128, 784), "float32"), b0: R.Tensor((128,), "float32"),
             w1: R.Tensor((10, 128), "float32"), b1: R.Tensor((10,), "float32")):
        cls = Module
        with R.dataflow():
            lv0 = {linear0}((x, w0, b0), out_sinfo=R.Tensor((1, 128), "float32"))
            lv1 = {relu}((lv0,), out_sinfo=R.Tensor((1, 128), "float32"))
            out = {linear1}((lv1, w1, b1), out_sinfo=R.Tensor((1, 10), "float32"))
            R.output(out)
        return out
"""


def module(functions: str, **calls: str) -> IRModule:
    """``MAIN`` after ``others``. Callees are tensor functions, or registered functions if the name has a dot."""
    text = MAIN
    for place, name in calls.items():
        call = f'R.call_dps_packed("{name}", ' if "." in name else f"R.call_tir(cls.{name}, "
        text = text.replace(f"{{{place}}}(", call)
    return parse("@I.ir_module\nclass Module:\n" + functions + text)


def tensor_functions() -> IRModule:
    return module(LINEAR0 + LINEAR1 + RELU0, linear0="linear0", relu="relu0", linear1="linear1")


def mixture() -> IRModule:
    return module(LINEAR0, linear0="linear0", relu="env.relu", linear1="env.linear")


def test_tensor_functions_called_by_a_graph():
    lib = check_mlp(tensor_functions(), X, *WEIGHTS.values())
    assert sorted(lib.functions) == ["linear0", "linear1", "main", "relu0"]


@pytest.mark.usefixtures("environment")
def test_registered_functions_called_by_a_graph():
    check_mlp(module("", linear0="env.linear", relu="env.relu", linear1="env.linear"), X, *WEIGHTS.values())


@pytest.mark.usefixtures("environment")
def test_a_mixture_of_both():
    check_mlp(mixture(), X, *WEIGHTS.values())


@pytest.mark.usefixtures("environment")
def test_bound_parameters_are_constants_beside_the_text():
    bound = bind_params(mixture(), "main", {name: torch.from_numpy(w) for name, w in WEIGHTS.items()})
    check_mlp(bound, X)
    text = to_text(bound)
    weights = 'metadata["relax.expr.Constant"][0], metadata["relax.expr.Constant"][1]'
    assert f"R.call_tir(cls.linear0, (x, {weights})" in text.text
    assert [c.shape for c in text.constants] == [(128, 784), (128,), (10, 128)]
    assert 'def main(x: R.Tensor((1, 784), dtype="float32")) -> ' in text.text
    assert structural_equal(parse(text.text, text.constants), bound)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"w2": W1}, "main has no parameter 'w2'; it has x, w0, b0, w1, b1"),
        ({"w0": W1}, r"w0 got float32\(10, 128\); expected float32\(128, 784\)"),
        ({"b0": B0.astype(np.float64)}, r"b0 got float64\(128\); expected float32\(128\)"),
    ],
)
def test_mismatched_parameter_values(params: dict[str, np.ndarray], message: str):
    with pytest.raises(BindError, match=message):
        bind_params(tensor_functions(), "main", params)


def test_what_cannot_be_bound_or_built():
    mod = tensor_functions()
    with pytest.raises(BindError, match="no graph function 'linear0'; the module has main"):
        bind_params(mod, "linear0", {})
    with pytest.raises(MLCError, match="bind_params: w0 got str .*; expected an array"):
        bind_params(mod, "main", {"w0": "text"})
    with pytest.raises(MLCError, match="got a dict; expected an IRModule or a function of one"):
        build({})
    for target, message in (("gpu", "no kind of target 'gpu'"), ("cpu:none", "mcpu is 'none'")):
        with pytest.raises(MLCError, match=message):
            build(mod, target)


def test_binding_gives_symbolic_sizes_a_value():
    mod = parse("""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", "k"), "float32"), w: R.Tensor(("k", 3), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            R.output(y)
        return y
""")
    w = np.arange(6, dtype=np.float32).reshape(2, 3)
    main = build(bind_params(mod, "main", {"w": w}))["main"]
    assert main.spec.inputs[0].shape == ("n", 2)
    assert np.array_equal(main(np.ones((4, 2), np.float32)), np.ones((4, 2)) @ w)


def test_a_function_is_replaced_by_a_scheduled_one():
    mod = tensor_functions()
    name = mod.get_global_var("linear0")
    schedule = Schedule(mod[name])
    i, j, k = schedule.get_loops(schedule.get_block("Y"))
    j_0, j_1 = schedule.split(j, [None, 16])
    schedule.reorder(i, j_0, k, j_1)
    schedule.decompose_reduction("Y", k)
    changed = mod.with_function(name, schedule.func)
    assert "for k, j_1 in T.grid(784, 16):" in to_script(changed) and "Y_init" not in to_script(mod)
    check_mlp(changed, X, *WEIGHTS.values())


def test_two_dataflow_blocks_with_a_tensor_between():
    text = """
    @R.function
    def main(x: R.Tensor((1, 784), "float32"), w0: R.Tensor((128, 784), "float32"), b0: R.Tensor((128,), "float32"),
             w1: R.Tensor((10, 128), "float32"), b1: R.Tensor((10,), "float32")):
        cls = Module
        with R.dataflow():
            lv0 = R.call_tir(cls.linear0, (x, w0, b0), (1, 128), dtype="float32")
            gv0 = R.call_tir(cls.relu0, (lv0,), (1, 128), dtype="float32")
            R.output(gv0)
        gv1 = R.alloc_tensor(R.shape([10]), dtype="float32")
        with R.dataflow():
            bias = R.add(gv1, b1)
            out = R.call_tir(cls.linear1, (gv0, w1, bias), (1, 10), dtype="float32")
            R.output(out)
        return out
"""
    check_mlp(parse("@I.ir_module\nclass Module:\n" + LINEAR0 + LINEAR1 + RELU0 + text), X, *WEIGHTS.values())


def test_the_expected_numbers_are_those_of_torch():
    layers = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    layers.load_state_dict(
        {k: torch.from_numpy(w) for k, w in zip(("0.weight", "0.bias", "2.weight", "2.bias"), WEIGHTS.values())}
    )
    np.testing.assert_allclose(layers(torch.from_numpy(X)).detach().numpy(), EXPECTED, rtol=1e-4, atol=1e-5)
