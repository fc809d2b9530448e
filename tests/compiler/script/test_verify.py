"""The verifier: messages and locations of errors for invalid functions."""

from __future__ import annotations

import pytest

from mlc_compiler.ir.expr import BinaryOp, Call, Cast, FloatImm, IntImm, Let, Not, Select, Var
from mlc_compiler.ir.module import IRModule
from mlc_compiler.relax import nodes as rx
from mlc_compiler.script import parse
from mlc_compiler.tir import nodes as tir
from mlc_compiler.verifier import VerifyError, verify

A = tir.buffer("A", (8, 8))
B = tir.buffer("B", (8,), "int32")
X, P = Var("x", "float32"), Var("p", "bool")
ZERO = IntImm(0)


def put(value: object, index: object = ZERO) -> tir.Stmt:
    return tir.BufferStore(B, value, (index,))


def block(*iters: tir.IterVar, body: tir.Stmt) -> tir.Block:
    return tir.Block("b", iters, (), (), body)


I, N = Var("i"), Var("n")  # noqa: E741
VI = Var("vi")
TRUE = IntImm(1, "bool")

TENSOR_CASES: dict[str, tir.Stmt] = {
    "variable 'i' is used where nothing defines it": put(IntImm(1, "int32"), I),
    "buffer 'C' is used where nothing defines it": put(tir.buffer("C", (8,), "int32")[0]),
    "buffer 'B' holds int32; got a value of float32": put(FloatImm(1.0)),
    "buffer 'A' has 2 axes; got 1 indices": put(Cast("int32", tir.BufferLoad(A, (ZERO,)))),
    "an index of 'B' is float32; expected an integer": put(IntImm(1, "int32"), X),
    "operands of '\\+' are int64 and int32": put(Cast("int32", BinaryOp("+", ZERO, B[0]))),
    "operands of 'and' are int64; expected bool": tir.Evaluate(BinaryOp("and", ZERO, ZERO)),
    "operands of '\\+' are bool; expected numbers": tir.Evaluate(BinaryOp("+", P, P)),
    "unknown operator '\\*\\*'": tir.Evaluate(BinaryOp("**", X, X)),
    "the operand of 'not' is float32": tir.Evaluate(Not(X)),
    "the values of T.Select are float32 and int64": tir.Evaluate(Select(P, X, ZERO)),
    "the condition of T.Select is float32": tir.Evaluate(Select(X, X, X)),
    "a cast of float32 to itself": tir.Evaluate(Cast("float32", X)),
    "if_then_else takes a bool and two values of int64": tir.Evaluate(Call("if_then_else", (P, X, X), "int64")),
    "200 does not fit in int8": tir.Evaluate(IntImm(200, "int8")),
    "variable 'x' is defined again": tir.Evaluate(Let(X, FloatImm(1.0), X)),
    "the condition is int64; expected bool": tir.IfThenElse(ZERO, put(B[0])),
    "the extent of loop 'i' is float32": tir.For(I, X, put(B[0])),
    "loop 'i' is int64; its extent is int32": tir.For(I, IntImm(4, "int32"), put(B[0])),
    "loop kind 'simd'; expected one of serial": tir.For(I, IntImm(4), put(B[0]), "simd"),
    "loop 'i' of kind thread_binding has thread None": tir.For(I, IntImm(4), put(B[0]), "thread_binding"),
    "variable 'i' is defined again inside its own scope": tir.For(I, IntImm(2), tir.For(I, IntImm(2), put(B[0]))),
    "buffer 'A' is allocated again": tir.Allocate(A, put(B[0])),
    "'i' is int64; its value is float32": tir.LetStmt(I, X, put(B[0])),
    "block 'b' has 1 variables; 0 values are bound": tir.BlockRealize(
        (), TRUE, block(tir.IterVar(VI, IntImm(8), "S"), body=put(B[0]))
    ),
    "block variable 'vi' is of kind 'X'": tir.BlockRealize(
        (ZERO,), TRUE, block(tir.IterVar(VI, IntImm(8), "X"), body=put(B[0]))
    ),
    "loop variable 'i' is used inside a block; bind it": tir.For(
        I, IntImm(8), tir.BlockRealize((ZERO,), TRUE, block(tir.IterVar(VI, IntImm(8), "S"), body=put(B[0], I)))
    ),
    "an attribute holds object": tir.For(I, IntImm(4), put(B[0]), annotations={"x": object()}),
}


@pytest.mark.parametrize("message", TENSOR_CASES)
def test_invalid_tensor_functions_are_errors(message: str) -> None:
    func = tir.PrimFunc((A, B, X, P), TENSOR_CASES[message], {"global_symbol": "kernel"})
    with pytest.raises(VerifyError, match=message) as caught:
        verify(func)
    assert caught.value.where[0] == "function kernel"


def test_parameters_have_different_names() -> None:
    with pytest.raises(VerifyError, match="two parameters are called 'B'"):
        verify(tir.PrimFunc((B, tir.buffer("B", (4,), "int32")), tir.SeqStmt(())))


def test_the_error_names_the_statement() -> None:
    func = tir.PrimFunc((B,), tir.For(I, IntImm(8), tir.SeqStmt((put(B[0], I), put(FloatImm(0.5), I)))))
    with pytest.raises(VerifyError) as caught:
        verify(IRModule({"f": func}))
    assert caught.value.where == ("function f", "B[i] = T.float32(0.5)")


def test_variables_of_sizes_come_from_the_parameters() -> None:
    wide = tir.buffer("W", (N * 2,))
    with pytest.raises(VerifyError, match="variable 'n' is used where nothing defines it"):
        verify(tir.PrimFunc((wide,), tir.SeqStmt(())))
    verify(tir.PrimFunc((wide, N), tir.SeqStmt(())))
    verify(tir.PrimFunc((wide, tir.buffer("V", (N,))), tir.SeqStmt(())))


HEADER = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def double(a: T.handle, b: T.handle, k: T.int64):
        n = T.int64()
        A = T.match_buffer(a, (n, 4), "float32")
        B = T.match_buffer(b, (n, 8), "float32")
        for i in range(n):
            B[i, k] = A[i, 0]

    @R.function(private=True)
    def inner(x: R.Tensor(("n", 4), dtype="float32")) -> R.Tensor(("n", 4), dtype="float32"):
        return x

    @R.function
    def main(x: R.Tensor((3, 4), "float32"), y: R.Tensor((3, 4), "float16"), z: R.Tensor(("m", 4), "float32")):
        cls = Module
        m = T.int64()
        """

GRAPH_CASES = {
    'lv = R.call_tir(cls.double, (x,), out_sinfo=R.Tensor((3, 8), "float32"), tir_vars=R.shape([1]))': None,
    'lv = R.call_tir(cls.double, (z,), out_sinfo=R.Tensor((m, 8), "float32"), tir_vars=R.shape([m]))': None,
    'lv = R.call_tir(cls.double, (x,), out_sinfo=R.Tensor((3, 8), "float32"))': "double takes 1 scalars; got 0",
    'lv = R.call_tir(cls.double, (x, x), out_sinfo=R.Tensor((3, 8), "float32"), tir_vars=R.shape([1]))': (
        "double takes 2 tensors; got 3"
    ),
    'lv = R.call_tir(cls.double, (y,), out_sinfo=R.Tensor((3, 8), "float32"), tir_vars=R.shape([1]))': (
        "tensor 'A' of double has dtype float16; expected float32"
    ),
    'lv = R.call_tir(cls.double, (x,), out_sinfo=R.Tensor((4, 8), "float32"), tir_vars=R.shape([1]))': (
        "tensor 'B' of double has size 4 on axis 0; expected 3"
    ),
    'lv = R.call_tir(cls.double, (x,), out_sinfo=R.Tensor((8,), "float32"), tir_vars=R.shape([1]))': (
        "tensor 'B' of double has rank 1; expected 2"
    ),
    'lv = R.call_tir(cls.inner, (x,), out_sinfo=R.Tensor((3, 4), "float32"))': "'inner' is a Function; expected PrimF",
    'lv = R.call_tir_inplace(cls.double, (x, x), out_sinfo=R.Tensor((3, 8), "float32"), inplace_indices=[0, 1])': (
        "inplace_indices has 2 items for 1 results"
    ),
    'lv: R.Tensor((3, 4), "float32") = cls.inner(x, x)': "inner takes 1 arguments; got 2",
    'lv: R.Tensor((3, 4), "float32") = cls.inner(y)': "argument 'x' of inner has dtype float16; expected float32",
    'lv: R.Tensor((3, 4), "float32") = cls.inner(x)': None,
    'lv: R.Tensor((3, 4), "float32") = R.nn.softmax(y)': "the value of 'lv' has dtype float16; expected float32",
    'lv: R.Tensor((3, 5), "float32") = R.exp(x)': "the value of 'lv' has size 4 on axis 1; expected 5",
    'lv: R.Tensor((12,), "float32") = x': "the value of 'lv' has rank 2; expected 1",
    'lv: R.Tuple(R.Tensor((3, 4), "float32")) = (x, x)': "the value of 'lv' has 2 fields; expected 1",
    "lv = R.exp(x)": None,
}


@pytest.mark.parametrize("binding", GRAPH_CASES)
def test_bindings(binding: str) -> None:
    mod = parse(HEADER + binding + "\n        return lv\n")
    message = GRAPH_CASES[binding]
    if message is None:
        verify(mod)
        return
    with pytest.raises(VerifyError, match=message) as caught:
        verify(mod)
    assert caught.value.where[0] == "function main"
    assert caught.value.where[1].startswith("lv")


INFO = rx.TensorStructInfo((IntImm(4),), "float32")
V = rx.Var("v", INFO)
W = rx.Var("w", INFO, dataflow=True)


def graph(*blocks: rx.BindingBlock, ret: rx.Expr = V, params: tuple[rx.Var, ...] = (V,)) -> rx.Function:
    return rx.Function(params, blocks, ret, INFO)


def exp(arg: rx.Expr) -> rx.Call:
    return rx.Call(rx.Op("exp"), (arg,), {}, None, INFO)


@pytest.mark.parametrize(
    ("func", "message"),
    [
        (graph(params=()), "variable 'v' is used before it is bound"),
        (graph(params=(V, V)), "variable 'v' is bound twice"),
        (graph(params=(rx.Var("v", None),)), "parameter 'v' has no structure info"),
        (graph(params=(V, rx.Var("v", INFO))), "two parameters are called 'v'"),
        (graph(rx.BindingBlock((rx.Binding(V, V),))), "variable 'v' is bound twice"),
        (graph(rx.BindingBlock((rx.Binding(W, V),))), "'w' is a dataflow variable outside a dataflow block"),
        (graph(rx.BindingBlock((rx.Binding(W, V),), True), ret=W), "'w' is used outside its dataflow block"),
        (graph(rx.BindingBlock((rx.Binding(W, exp(exp(V))),), True)), "a call is an argument; bind it"),
        (graph(ret=exp(V)), "a call is returned; bind it"),
        (rx.Function((V,), (), V), "the result has no structure info"),
        (rx.Function((V,), (), V, rx.TensorStructInfo((IntImm(5),), "float32")), "the result has size 4 on axis 0"),
        (graph(rx.BindingBlock((rx.Binding(W, rx.Call(rx.Op("exp"), (V, V))),), True)), "exp"),
        (graph(rx.BindingBlock((rx.Binding(W, rx.Call(rx.Op("o"), (), {"a b": 1})),), True)), "'a b' is not a valid"),
        (
            graph(rx.BindingBlock((rx.Binding(rx.Var("s", rx.TensorStructInfo((N,), "int8")), V),))),
            "dtype float32; expected int8",
        ),
        (
            graph(rx.BindingBlock((rx.Binding(rx.Var("s", rx.ShapeStructInfo((N,))), rx.ShapeExpr((N,))),))),
            "the symbolic size 'n' of a value comes from no parameter",
        ),
    ],
)
def test_invalid_graph_functions_are_errors(func: rx.Function, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        verify(func)


def test_function_names_must_be_identifiers() -> None:
    with pytest.raises(VerifyError, match="'a.b' is not a valid function name"):
        verify(IRModule({"a.b": graph()}))
