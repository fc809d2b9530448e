"""The printed form of nodes: literals, precedence, names, statements."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mlc_compiler.ir import expr as ir
from mlc_compiler.ir.expr import BinaryOp, Call, Cast, FloatImm, IntImm, Let, Not, PrimExpr, Select, Var, const
from mlc_compiler.script import parse, script, to_text
from mlc_compiler.tir import nodes as tir
from tests.compiler.script.round_trip import check_round_trip

ROOT = Path(__file__).resolve().parents[3]
I, J = Var("i"), Var("j")  # noqa: E741
X, Y = Var("x", "float32"), Var("y", "float32")
P, Q = Var("p", "bool"), Var("q", "bool")
SHORT = Var("s", "int32")


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (IntImm(-3), "-3"),
        (IntImm(3, "int32"), "T.int32(3)"),
        (IntImm(1, "bool"), "T.bool(True)"),
        (FloatImm(0.5), "T.float32(0.5)"),
        (FloatImm(float("-inf"), "float16"), 'T.float16("-inf")'),
        (FloatImm(float("nan"), "bfloat16"), 'T.bfloat16("nan")'),
        (FloatImm(1e-5), "T.float32(1e-05)"),
        (I + 1, "i + 1"),
        (SHORT + 1, "s + T.int32(1)"),
        (BinaryOp("+", IntImm(1), IntImm(2)), "T.int64(1) + T.int64(2)"),
        ((I + J) * 2 - (J - I), "(i + j) * 2 - (j - i)"),
        (I - (J + 1), "i - (j + 1)"),
        (I // 4 * 4 + I % 4, "i // 4 * 4 + i % 4"),
        (I // (J * 4), "i // (j * 4)"),
        (BinaryOp("/", I, J), "T.Div(i, j)"),
        (X / Y, "x / y"),
        (ir.maximum(X, 0.0), "T.max(x, T.float32(0.0))"),
        (ir.binary("or", ir.binary("and", P, Q), I < J), "p and q or i < j"),
        (ir.binary("and", P, ir.binary("or", Q, P)), "p and (q or p)"),
        (BinaryOp("==", I < J, P), "(i < j) == p"),
        (Not(ir.binary("and", P, Q)), "not (p and q)"),
        ((I << 2) | 1, "i << 2 | 1"),
        (I & (J << 1), "i & j << 1"),
        (I & (J | 1), "i & (j | 1)"),
        (Cast("float32", I), 'T.Cast("float32", i)'),
        (Select(P, X, FloatImm(1.0)), "T.Select(p, x, T.float32(1.0))"),
        (Call("exp", (X,), "float32"), "T.exp(x)"),
        (Call("exp", (X,), "float64"), 'T.call_intrin("float64", "exp", x)'),
        (Call("if_then_else", (P, I, IntImm(0)), "int64"), "T.if_then_else(p, i, T.int64(0))"),
        (Call("dot", (X, IntImm(4)), "int32"), 'T.call_intrin("int32", "dot", x, T.int64(4))'),
        (Call("reinterpret", (X,), "int32"), 'T.reinterpret("int32", x)'),
        (Let(J, I + 1, J * J), "T.Let(j * j, where={j: i + 1})"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_expressions(node: PrimExpr, text: str) -> None:
    assert script(node) == text


def body_of(stmt: tir.Stmt, *params: tir.Buffer | Var) -> list[str]:
    """The printed body of a function; asserts that the function round-trips."""
    text = check_round_trip(tir.PrimFunc(params, stmt))
    return [line[4:] for line in text.splitlines()[4:]]


A = tir.buffer("A", (8, 8))
B = tir.buffer("B", (8,), "int32")


def test_loops_fuse_into_a_grid_unless_an_extent_depends_on_an_outer_one() -> None:
    i, j, k = Var("i"), Var("j"), Var("k")
    store = tir.BufferStore(A, FloatImm(0.0), (i, j))
    loops = tir.For(i, IntImm(8), tir.For(j, IntImm(8), tir.For(k, j + 1, store)))
    assert body_of(loops, A) == [
        "for i, j in T.grid(8, 8):",
        "    for k in range(j + 1):",
        "        A[i, j] = T.float32(0.0)",
    ]


def test_every_kind_of_loop() -> None:
    loop_vars = [Var("i") for _ in range(5)]
    stmt: tir.Stmt = tir.BufferStore(B, IntImm(1, "int32"), (loop_vars[0],))
    for var, kind in zip(loop_vars, ("vectorized", "unroll", "parallel", "thread_binding", "serial")):
        thread = "threadIdx.x" if kind == "thread_binding" else None
        annotations = {"pragma": 1, "note": "x"} if kind == "serial" else {}
        stmt = tir.For(var, IntImm(2), stmt, kind, thread, annotations)
    assert [line.strip() for line in body_of(stmt, B)] == [
        'for i in T.serial(2, annotations={"pragma": 1, "note": "x"}):',
        'for i_1 in T.thread_binding(2, thread="threadIdx.x"):',
        "for i_2 in T.parallel(2):",
        "for i_3 in T.unroll(2):",
        "for i_4 in T.vectorized(2):",
        "B[i_4] = T.int32(1)",
    ]


def test_definitions_as_statement_or_with_block() -> None:
    x, y = Var("x", "int32"), Var("y", "int32")
    local = tir.buffer("local", (4,), "int32", scope="local")
    put = tir.BufferStore(B, x, (IntImm(0),))
    first = tir.LetStmt(x, IntImm(3, "int32"), put)
    last = tir.Allocate(local, tir.LetStmt(y, local[0], tir.BufferStore(B, y, (IntImm(1),))))
    assert body_of(tir.SeqStmt((first, last)), B) == [
        "with T.LetStmt(T.int32(3)) as x:",
        "    B[0] = x",
        'local = T.decl_buffer((4,), "int32", scope="local")',
        "y: T.int32 = local[0]",
        "B[1] = y",
    ]


def test_sequences_of_none_and_one_keep_their_shape() -> None:
    store = tir.BufferStore(B, IntImm(1, "int32"), (IntImm(0),))
    one, none = tir.SeqStmt((store,)), tir.SeqStmt(())
    branch = tir.IfThenElse(Var("c", "bool"), one, tir.IfThenElse(IntImm(1, "bool"), none, store))
    assert body_of(branch, B, branch.condition) == [
        "if c:",
        "    B[0] = T.int32(1)",
        "    pass",
        "elif T.bool(True):",
        "    pass",
        "else:",
        "    B[0] = T.int32(1)",
    ]


def test_while_and_evaluate() -> None:
    call = tir.Evaluate(Call("prefetch", (A[0, 1],), "int32"))
    lines = body_of(tir.While(B[0] < 3, tir.SeqStmt((call, tir.BufferStore(B, B[0] + 1, (IntImm(0),))))), A, B)
    assert lines == [
        "while B[0] < T.int32(3):",
        '    T.evaluate(T.call_intrin("int32", "prefetch", A[0, 1]))',
        "    B[0] = B[0] + T.int32(1)",
    ]


def test_block_with_everything() -> None:
    n = Var("n")
    wide, narrow = tir.buffer("wide", (n * 4, 8)), tir.buffer("narrow", (n,))
    vi, vk, i, k = Var("vi"), Var("vk"), Var("i"), Var("k")
    rows = tir.BufferRegion(wide, (tir.Range(vi * 4, IntImm(4)), tir.Range(IntImm(0), IntImm(8))))
    corner = tir.BufferRegion(wide, (tir.Range(IntImm(2), IntImm(3)), tir.Range(vk, n - vk)))
    local = tir.buffer("local", (4,), scope="local")
    block = tir.Block(
        "sum",
        (tir.IterVar(vi, n, "S"), tir.IterVar(vk, IntImm(8), "R")),
        (rows, corner),
        (tir.BufferRegion(narrow, (tir.Range(vi, IntImm(1)),)),),
        tir.BufferStore(narrow, narrow[vi] + wide[vi * 4, vk], (vi,)),
        tir.BufferStore(narrow, FloatImm(0.0), (vi,)),
        (local,),
        {"axis": (0, 1)},
    )
    realize = tir.BlockRealize((i, k * 2), k * 2 < 8, block)
    func = tir.PrimFunc(
        (wide, narrow), tir.root_block(tir.For(i, n, tir.For(k, IntImm(4), realize))), {"global_symbol": "main"}
    )
    assert check_round_trip(func).splitlines()[2:] == [
        "@T.prim_func",
        "def main(var_wide: T.handle, var_narrow: T.handle):",
        "    n = T.int64()",
        '    wide = T.match_buffer(var_wide, (n * 4, 8), "float32")',
        '    narrow = T.match_buffer(var_narrow, (n,), "float32")',
        '    # with T.block("root"):',
        "    for i, k in T.grid(n, 4):",
        '        with T.block("sum"):',
        "            vi = T.axis.spatial(n, i)",
        "            vk = T.axis.reduce(8, k * 2)",
        "            T.where(k * 2 < 8)",
        "            T.reads(wide[vi * 4:vi * 4 + 4, 0:8], wide[2:5, vk:vk + (n - vk)])",
        "            T.writes(narrow[vi])",
        '            T.block_attr({"axis": (0, 1)})',
        '            local = T.alloc_buffer((4,), "float32", scope="local")',
        "            with T.init():",
        "                narrow[vi] = T.float32(0.0)",
        "            narrow[vi] = narrow[vi] + wide[vi * 4, vk]",
    ]


def test_the_root_block_is_a_comment_if_the_parser_adds_it() -> None:
    store = tir.BufferStore(B, IntImm(1, "int32"), (IntImm(0),))
    inner = tir.BlockRealize((), IntImm(1, "bool"), tir.Block("inner", (), (), (), store))
    assert body_of(tir.root_block(inner), B)[0] == '# with T.block("root"):'
    assert body_of(tir.root_block(store), B)[0] == 'with T.block("root"):'
    bare = check_round_trip(tir.PrimFunc((B,), inner))
    assert "@T.prim_func(private=True, root=False)" in bare


def test_scalar_parameters_and_clashing_names() -> None:
    n, n_again = Var("n"), Var("n")
    odd = tir.buffer("2d.data", (n, n_again), scope="shared")
    keyword = Var("lambda", "int32")
    func = tir.PrimFunc((odd, n, keyword), tir.BufferStore(odd, Cast("float32", keyword), (n, n_again)))
    assert check_round_trip(func).splitlines()[3:] == [
        "def main(var__2d_data: T.handle, n: T.int64, lambda_1: T.int32):",
        "    n_1 = T.int64()",
        '    _2d_data = T.match_buffer(var__2d_data, (n, n_1), "float32", scope="shared")',
        '    _2d_data[n, n_1] = T.Cast("float32", lambda_1)',
    ]


def test_one_variable_in_several_loops() -> None:
    i = Var("i")
    loop = tir.For(i, IntImm(8), tir.BufferStore(B, IntImm(1, "int32"), (i,)))
    assert body_of(tir.SeqStmt((loop, loop)), B)[::2] == ["for i in range(8):"] * 2


def test_attributes_keep_python_types() -> None:
    attrs = {"a": True, "b": 1, "c": 1.5, "d": "x", "e": None, "f": [1, (2,)], "g": {"h": float("inf")}, "k": IntImm(3)}
    text = check_round_trip(tir.PrimFunc((B,), tir.SeqStmt(()), attrs))
    expected = '"e": None, "f": [1, (2,)], "g": {"h": float("inf")}, "k": T.int64(3)})'
    assert f'T.func_attr({{"a": True, "b": 1, "c": 1.5, "d": "x", {expected}' in text
    again = parse(text)
    assert again.attrs["a"] is True and isinstance(again.attrs["k"], IntImm)


def test_fragments_print_without_a_function() -> None:
    i = Var("i")
    assert script(tir.For(i, IntImm(8), tir.BufferStore(B, IntImm(1, "int32"), (i,)))) == (
        "for i in range(8):\n    B[i] = T.int32(1)\n"
    )
    assert script(A) == 'A: T.Buffer((8, 8), "float32")'
    assert (
        script(tir.BufferRegion(A, (tir.Range(I, IntImm(1)), tir.Range(const(0, "int64"), IntImm(8))))) == "A[i, 0:8]"
    )


def test_zero_dimensional_buffers() -> None:
    scalar = tir.buffer("s", ())
    assert body_of(tir.BufferStore(scalar, scalar[()] + 1.0, ()), scalar) == ["s[()] = s[()] + T.float32(1.0)"]


def test_printing_is_deterministic() -> None:
    texts = {to_text(parse(SOURCE)).text for _ in range(3)}
    assert len(texts) == 1


SOURCE = """
@T.prim_func
def f(A: T.Buffer((4,), "float32")):
    for i in range(4):
        A[i] = T.exp(A[i])
"""


def test_modules_and_functions_print_as_script() -> None:
    program = """
from mlc_compiler import te
a = te.placeholder((4,), name="a")
print(te.create_prim_func([a, te.compute((4,), lambda i: a[i] + 1.0, name="b")]))
"""
    command = [sys.executable, "-c", program]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    mod = parse(printed)
    assert "b[v_i] = a[v_i] + T.float32(1.0)" in printed
    assert str(mod) == mod.script() == to_text(mod).text
