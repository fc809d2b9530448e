"""Parse errors: the message, the line and column, and the caret below the source line."""

from __future__ import annotations

import textwrap

import pytest

from mlc_compiler.script import ScriptError, parse


def tensor_function(*body: str) -> str:
    lines = ["@T.prim_func", 'def f(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "int32"), n: T.int64):', *body]
    return "\n    ".join(lines[1:]).join([lines[0] + "\n", "\n"])


def graph_function(*body: str) -> str:
    header = '@R.function\ndef main(x: R.Tensor((4, 8), dtype="float32"), t: R.Tuple(R.Tensor((4,), dtype="int32"))):'
    return "\n    ".join([header, *body]) + "\n"


def test_the_caret_is_under_the_mistake() -> None:
    with pytest.raises(ScriptError) as caught:
        parse(tensor_function("for i in range(4):", "    A[i, 0] = A[j, 0]"), name="kernel.py")
    assert str(caught.value).splitlines() == [
        "unknown name 'j'",
        "  in   kernel.py, line 4, column 21",
        "  in     A[i, 0] = A[j, 0]",
        "  in                 ^",
    ]


TENSOR_CASES = {
    "A[0] = 1.0": "buffer 'A' has 2 axes; got 1 indices",
    "A[0, 1] = B": "got the buffer B; index it",
    "B[0] = 0.5": r"buffer 'B' holds int32; got a float32 expression",
    "B[0] = T.float32(1)": "hint write T.Cast",
    "A[0, 0:4] = 1.0": "a store writes one element; got a slice",
    "A[0, 1] = n / 2": "'/' of int64 values; use // ",
    "A[0, 1] = T.expp(A[0, 0])": "unknown function T.expp",
    "A[0, 1] = T.exp(A[0, 0], 1)": r"T.exp does not take \(float32, float32\)",
    "A[0, 1] = 1.0 if n and B[0] else 2.0": "'and' takes truth values; got int64",
    "A[0, 1] = T.Select((n < 1) + (n > 3), 1.0, 2.0)": "'\\+' takes numbers; got truth values: cast them",
    "if not n: A[0, 0] = 1.0": "'not' takes a truth value; got int64",
    "A[0, 1] = [x for x in B]": "ListComp is not part of the script language",
    "A[0, 1] = (lambda: 1)()": "Lambda is not part of the script language",
    "import os": "Import is not part of a tensor function",
    "return A": "a tensor function returns nothing",
    "for i in [1, 2]: A[i, 0] = 1.0": "expected T.grid or one of T.range",
    "for i, j in T.grid(4): A[i, 0] = 1.0": "T.grid: got 2 names and 1 extents",
    "for i in range(0, 8, 2): A[i, 0] = 1.0": "expected an extent, or start and stop; got 3 arguments",
    "C = T.match_buffer(A, (4,))": "T.match_buffer takes a parameter that is a T.handle",
    "C = T.decl_buffer((4,), strides=[2])": r"buffers are dense and row-major; got strides=",
    "C = T.decl_buffer((4,), dtype=4)": 'expected a dtype such as "float32", got 4',
    "D, E = T.axis.remap('SS', [n])": "got 2 names, 2 kinds, 1 loops",
    "D = T.axis.remap('S', [n])": "variables of enclosing loops",
    "D = T.axis.spatial((1, 4), n)": "a block axis must start at 0",
    "T.reads(4)": r"expected regions such as A\[0:4, vi\], got 4",
    "x: T.int32 = A[0, 0]": "'x' is declared int32; got a float32 expression",
    "with T.attr(n, 'k', 1): A[0, 0] = 1.0": "expected T.block, T.init, T.LetStmt or T.decl_buffer",
    "A[0, 1] = open('/etc/passwd')": "unknown name 'open'",
    "A.dtype = 4": "expected one name on the left",
}


@pytest.mark.parametrize("statement", TENSOR_CASES)
def test_tensor_function_mistakes(statement: str) -> None:
    with pytest.raises(ScriptError, match=TENSOR_CASES[statement]) as caught:
        parse(tensor_function(statement))
    assert caught.value.where[0].startswith("<script>, line 3, column ")
    assert "^" in caught.value.where[2]


def test_a_scalar_cannot_be_carried_through_a_loop() -> None:
    text = tensor_function("total = A[0, 0]", "for i in range(4):", "    total = total + A[i, 0]")
    with pytest.raises(ScriptError, match="'total' is defined outside this loop") as caught:
        parse(text)
    assert "keep it in a buffer" in str(caught.value.hint)


def test_close_names_are_suggested() -> None:
    with pytest.raises(ScriptError) as caught:
        parse(tensor_function("weights = A[0, 0]", "A[0, 1] = weigths"))
    assert caught.value.hint == "did you mean 'weights'?"


GRAPH_CASES = {
    "return y": "unknown name 'y'",
    "return R.nosuch(x)": "unknown operator 'nosuch'",
    "return R.matmul(x, x)": "matmul",
    "return cls.f(x)": "annotate it",
    "return t[1]": "cannot take item 1",
    "return x[0]": "expected a tuple",
    "return x % x": "operator '%' is not defined for tensors",
    "return R.call_tir(x, (x,), out_sinfo=R.Tensor((4,)))": "expected a function of the module or a name",
    "return R.call_tir(cls.f, (x,))": "the results are not described",
    "x": "must end with return",
    'return R.const(1, "float33")': "unknown dtype 'float33'",
}


@pytest.mark.parametrize("statement", GRAPH_CASES)
def test_graph_function_mistakes(statement: str) -> None:
    with pytest.raises(ScriptError, match=GRAPH_CASES[statement]):
        parse(graph_function(statement))


def test_bindings_and_annotations() -> None:
    with pytest.raises(ScriptError, match='expected structure info such as R.Tensor.*got "?4'):
        parse(graph_function("y: 4 = x", "return y"))
    with pytest.raises(ScriptError, match="For is not part of a graph function"):
        parse(graph_function("for i in range(4): pass", "return x"))
    with pytest.raises(ScriptError, match="no binding of this dataflow block has that name"):
        parse(graph_function("with R.dataflow():", "    lv = R.exp(x)", "    R.output(gv)", "return lv"))


def test_texts_that_define_nothing_or_too_much() -> None:
    with pytest.raises(ScriptError, match="got 0 classes and 0 functions; expected one @I.ir_module class"):
        parse("x = 4\n")
    with pytest.raises(ScriptError, match="neither decorated with @T.prim_func nor with @R.function"):
        parse("def f(x): return x\n")
    with pytest.raises(ScriptError, match="parameter 'a' is a T.handle without a T.match_buffer"):
        parse("@T.prim_func\ndef f(a: T.handle):\n    pass\n")


def test_syntax_errors_have_a_place_too() -> None:
    with pytest.raises(ScriptError, match="not valid Python syntax") as caught:
        parse("@T.prim_func\ndef f(A: T.Buffer((4,))):\n    A[0] = = 1\n")
    assert caught.value.where[0] == "<script>, line 3, column 12"


def test_a_function_of_the_module_that_does_not_exist() -> None:
    text = "@I.ir_module\nclass Module:\n" + textwrap.indent(graph_function("return cls.g(x)"), "    ")
    with pytest.raises(ScriptError, match="the module has no function 'g'; it has main"):
        parse(text)
