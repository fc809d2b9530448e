"""Alternative spellings that the parser accepts, from other TVMScript dialects."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler.ir.structural import first_difference
from mlc_compiler.relax import nodes as rx
from mlc_compiler.script import parse, to_text
from tests.compiler.script.round_trip import check_round_trip

PARAMS = 'A: T.Buffer((8, 8), "float32"), B: T.Buffer((8,), "int32"), n: T.int64'
HEADER = f"@T.prim_func(private=True)\ndef f({PARAMS}):\n    "
SAME = {
    "T.block": (
        'with T.sblock("b"):\n        T.reads([])\n        T.writes([B[0:1]])\n        T.sblock_attr({"k": True})\n'
        "        B[0] = 1",
        'with T.block("b"):\n        T.reads()\n        T.writes(B[0])\n        T.block_attr({"k": T.bool(True)})\n'
        "        B[0] = T.int32(1)",
    ),
    "alloc_buffer": (
        "C = T.sblock_alloc_buffer((8,))\n    A[0, 0] = C[0]",
        'C = T.alloc_buffer([8], dtype="float32", scope="")\n    A[0, 0] = C[0]',
    ),
    "attributes": (
        'T.func_attr({"tirx.noalias": True})\n    pass',
        'T.func_attr({"tir.noalias": T.bool(True)})\n    pass',
    ),
    "loops": (
        "for i in T.serial(T.int64(8)):\n        B[i] = B[i] + 1",
        "for i in range(8):\n        B[i] += 1",
    ),
    "start": (
        "for i in T.serial(2, 8):\n        B[i] = B[i]",
        "for i in range(6):\n        B[i + 2] = B[i + 2]",
    ),
    "operators": (
        "B[0] = T.Cast('int32', T.floordiv(n, 4) + T.floormod(n, 4)) if n > 2 and not n == 4 else T.max(B[0], 1)",
        "B[0] = T.if_then_else(n > 2 and not (n == 4), T.int32(n // 4 + n % 4), max(B[0], T.int32(1)))",
    ),
    "chained": ("if 0 < n < 4: A[0, 0] = -A[0, 0]", "if T.And(0 < n, n < 4): A[0, 0] = T.float32(0) - A[0, 0]"),
    "casts": ("A[0, 0] = B[0].astype('float32')", "A[0, 0] = T.cast(B[0], 'float32')"),
    "literals": ("A[0, 0] = 1", "A[0, 0] = T.float32(1.0)"),
    "index dtype": ("B[0] = n", "B[0] = T.Cast('int32', n)"),
    "intrinsics": (
        "A[0, 0] = T.call_intrin('float32', 'tir.exp', A[0, 0])",
        "A[0, 0] = T.exp(A[0, 0])",
    ),
    "let": ("x = n * 2\n    B[x] = 1", "x: T.int64 = n * 2\n    B[x] = 1"),
    "with let": ("with T.LetStmt(n * 2) as x:\n        B[x] = 1", "x: T.let[T.int64] = n * 2\n    B[x] = 1"),
    "truncating": ("B[0] = T.truncmod(B[0], 3)", "B[0] = B[0] - T.truncdiv(B[0], 3) * 3"),
    "python values": ("k = 4\n    for i in range(k * 2): B[i] = k", "for i in range(8): B[i] = 4"),
}


@pytest.mark.parametrize("name", SAME)
def test_two_spellings_of_one_function(name: str) -> None:
    first, second = (parse(HEADER + body + "\n") for body in SAME[name])
    assert first_difference(first, second) is None, to_text(first).text
    check_round_trip(first)


@pytest.mark.parametrize(
    "signature",
    [
        'A: T.Buffer[(n, 4), "float32"]',
        'A: T.Buffer((n, 4), "float32")',
        'A: T.Buffer(("n", T.int64(4)))',
    ],
)
def test_symbolic_sizes_of_buffers(signature: str) -> None:
    text = f'n = TypeVar("n")\n@T.prim_func\ndef f({signature}):\n    for i in range(n):\n        A[i, 0] = A[i, 1]\n'
    other = (
        '@T.prim_func\ndef f(a: T.handle):\n    n = T.int64()\n    A = T.match_buffer(a, (n, 4), dtype="float32")\n'
        "    for i in range(n):\n        A[i, 0] = A[i, 1]\n"
    )
    assert first_difference(parse(text), parse(other)) is None


def graph(*body: str, params: str = 'x: R.Tensor(("n", 4), dtype="float32")') -> rx.Function:
    return parse("\n    ".join([f"@R.function\ndef main({params}):", *body]) + "\n")


def test_nested_calls_are_bound_to_variables() -> None:
    nested = graph("y = R.add(R.multiply(x, x), R.const(1.0))", "return R.exp(y)")
    flat = graph("a = R.multiply(x, x)", "y = R.add(a, R.const(1.0))", "b = R.exp(y)", "return b")
    assert first_difference(nested, flat) is None
    operators = graph("y = x * x + 1.0", "return R.exp(y)")
    assert first_difference(operators, flat) is None


def test_names_may_be_bound_again() -> None:
    func = graph("with R.dataflow():", "    y = R.exp(x)", "    y = R.add(y, y)", "    R.output(y)", "return y")
    first, second = (b.var for b in func.bindings)
    assert (first.dataflow, second.dataflow) == (True, False)
    assert func.ret is second
    check_round_trip(func)


def test_positional_attributes_follow_the_operator() -> None:
    by_position = graph("return R.sum(x, [0], True)")
    by_name = graph("return R.sum(x, axis=(0,), keepdims=True)")
    assert first_difference(by_position, by_name) is None
    assert [s.value for s in by_name.ret_info.shape] == [1, 4]


def test_operands_may_be_named() -> None:
    by_position = graph("return R.strided_slice(x, [1], [0], [2])")
    by_name = graph("return R.strided_slice(x, axes=[1], begin=[0], end=[2], strides=None)")
    assert first_difference(by_position, by_name) is None
    n, columns = by_name.ret_info.shape
    assert (n.name, columns.value) == ("n", 2)


def test_attributes_are_plain_numbers_whatever_their_spelling() -> None:
    text = """
@R.function
def main(x: R.Tensor((2, 4, 3), "float32"), w: R.Tensor((4,), "float32")):
    y: R.Tensor((2, 4, 3), "float32") = R.clip(x, T.float64(-0.5), R.prim_value(T.float64(2.5)))
    z = R.nn.group_norm(y, w, w, num_groups=T.int64(2), channel_axis=1, axes=[2], center=True, scale=T.bool(True))
    return z
"""
    clip, group_norm = (b.value for b in parse(text).bindings)
    assert clip.attrs == {"min": -0.5, "max": 2.5}
    assert group_norm.attrs == {"num_groups": 2, "channel_axis": 1, "axes": (2,)}


def test_match_cast_defines_a_symbolic_size() -> None:
    func = graph(
        "m = T.int64()",
        'y = R.match_cast(x, R.Tensor((m, 4), dtype="float32"))',
        'z: R.Tensor((m * 4,), dtype="float32") = R.reshape(y, R.shape([m * 4]))',
        "return z",
    )
    m = func.bindings[0].var.struct_info.shape[0]
    assert func.bindings[0].matched and func.ret_info.shape[0].a is m
    check_round_trip(func)


def test_every_form_of_call_and_value() -> None:
    func = graph(
        "cls = Module",
        'a = R.call_tir_inplace(cls.f, (x,), out_sinfo=R.Tensor((n, 4), dtype="float32"), inplace_indices=[0])',
        'b = R.call_tir(cls.g, (x,), out_sinfo=[R.Tensor((n,), "int32"), R.Tensor((n,), "int8")],'
        "               tir_vars=R.shape([n]))",
        'c = R.call_dps_packed("my.op", (b[0],), out_sinfo=R.Tensor((n,), dtype="int32"))',
        'd: R.Object = R.call_packed("my.other", c, R.str("text"), R.dtype("float16"), sinfo_args=(R.Object,))',
        'e: R.Tensor((n, 4), dtype="float32") = cls.h(x, R.prim_value(n * 2), R.shape([n]))',
        "f = (e, (c,), d)",
        'g: R.Tuple(R.Object, R.Shape(["n", 4]), R.Shape(ndim=2), R.Prim("int64"), R.Prim("bool", value=n > 2))'
        " = cls.k(())",
        'h: R.Tensor(dtype="int8", ndim=3) = R.my.op(x, k="v", info=R.Tensor((2,), dtype="int4"), many=(1, (n, 2)))',
        "return f[1]",
    )
    text = check_round_trip(func)
    assert "tir_vars=R.shape([n]))" in text and "inplace_indices=(0,))" in text
    assert [b.var.name for b in func.bindings] == list("abcdefgh")
    assert isinstance(func.bindings[3].value.target, rx.ExternFunc)


def test_small_finite_constants_are_printed_inline() -> None:
    values = {
        "float32": np.array([0.1, -0.0, 1e-45], np.float32),
        "int8": np.array([[-128, 127]], np.int8),
        "bool": np.array(True),
        "large": np.arange(17, dtype=np.int64),
        "nan": np.array([np.nan], np.float16),
        "empty": np.zeros((0, 3), np.float32),
    }
    ret = rx.Tuple(tuple(rx.constant(v) for v in values.values()))
    func = rx.Function((), (), ret, rx.ObjectStructInfo())
    printed = to_text(func)
    check_round_trip(func)
    assert [c.shape for c in printed.constants] == [(17,), (1,), (0, 3)]
    assert 'R.const([0.10000000149011612, -0.0, 1.401298464324817e-45], "float32")' in printed.text
    assert 'metadata["relax.expr.Constant"][0]' in printed.text


def test_several_names_in_one_assignment() -> None:
    text = """
@T.prim_func
def f(a: T.handle, b: T.handle):
    n, m = T.int64(), T.int64()
    A = T.match_buffer(a, (n, m), "float32")
    B = T.match_buffer(b, (n, m), "float32")
    for i, j in T.grid(n, m):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj]
"""
    one_each = text.replace("n, m = T.int64(), T.int64()", "n = T.int64()\n    m = T.int64()")
    assert first_difference(parse(text), parse(one_each)) is None
