"""Random expressions, loop nests and graph functions round-trip through text."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_compiler.ir import dtype as dt
from mlc_compiler.ir.expr import (
    COMPARISONS,
    BinaryOp,
    Call,
    Cast,
    FloatImm,
    IntImm,
    Let,
    Not,
    PrimExpr,
    Select,
    Var,
)
from mlc_compiler.relax import nodes as rx
from mlc_compiler.tir import nodes as tir
from mlc_compiler.verifier import verify
from tests.compiler.script.round_trip import check_round_trip

DTYPES = ("int64", "int32", "uint8", "int4", "float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "bool")
INT_OPS = ("+", "-", "*", "/", "//", "%", "min", "max", "<<", ">>", "&", "|", "^")
FLOAT_OPS = ("+", "-", "*", "/", "min", "max")
NAMES = st.sampled_from(["i", "j", "x", "lambda", "T", "x_1", "a.b"])


@dataclass
class Visible:
    """The variables and buffers in scope."""

    variables: list[Var] = field(default_factory=list)
    buffers: list[tir.Buffer] = field(default_factory=list)

    def of(self, dtype: str) -> list[Var]:
        return [v for v in self.variables if v.dtype == dtype]


def immediate(draw: st.DrawFn, dtype: str) -> PrimExpr:
    if dt.is_float(dtype):
        return FloatImm(draw(st.floats(allow_nan=False)), dtype)
    if dtype == "bool":
        return IntImm(draw(st.integers(0, 1)), "bool")
    low = -(1 << (dt.bits(dtype) - 1)) if dt.is_signed(dtype) else 0
    return IntImm(draw(st.integers(low, low + (1 << dt.bits(dtype)) - 1)), dtype)


def leaf(draw: st.DrawFn, visible: Visible, dtype: str) -> PrimExpr:
    candidates: list[PrimExpr] = list(visible.of(dtype))
    indices = visible.of("int64")
    for b in visible.buffers:
        if b.dtype == dtype and indices:
            candidates.append(tir.BufferLoad(b, tuple(draw(st.sampled_from(indices)) for _ in b.shape)))
    if candidates and draw(st.booleans()):
        return draw(st.sampled_from(candidates))
    return immediate(draw, dtype)


def expression(draw: st.DrawFn, visible: Visible, dtype: str, depth: int) -> PrimExpr:
    """A well-typed expression, built node by node and therefore not folded."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return leaf(draw, visible, dtype)

    def sub(of: str = dtype) -> PrimExpr:
        return expression(draw, visible, of, depth - 1)

    choice = draw(st.integers(0, 6))
    if choice == 0:
        return Select(sub("bool"), sub(), sub())
    if choice == 1:
        return Call("if_then_else", (sub("bool"), sub(), sub()), dtype)
    if choice == 2:
        source = draw(st.sampled_from([d for d in DTYPES if d != dtype]))
        return Cast(dtype, sub(source))
    if choice == 3:
        var = Var(draw(NAMES), draw(st.sampled_from(DTYPES)))
        value = sub(var.dtype)
        inner = Visible([*visible.variables, var], visible.buffers)
        return Let(var, value, expression(draw, inner, dtype, depth - 1))
    if choice == 4:
        return Call(draw(st.sampled_from(["exp", "dot", "pow"])), (sub(), sub(draw(st.sampled_from(DTYPES)))), dtype)
    if dtype != "bool":
        return BinaryOp(draw(st.sampled_from(FLOAT_OPS if dt.is_float(dtype) else INT_OPS)), sub(), sub())
    if draw(st.booleans()):
        return Not(sub()) if draw(st.booleans()) else BinaryOp(draw(st.sampled_from(["and", "or", "=="])), sub(), sub())
    of = draw(st.sampled_from(DTYPES))
    return BinaryOp(draw(st.sampled_from(COMPARISONS)), sub(of), sub(of))


def statement(draw: st.DrawFn, visible: Visible, depth: int) -> tir.Stmt:
    choice = draw(st.integers(0, 7)) if depth else 0
    if choice <= 1:
        b = draw(st.sampled_from(visible.buffers))
        indices = tuple(expression(draw, visible, "int64", 1) for _ in b.shape)
        return tir.BufferStore(b, expression(draw, visible, b.dtype, 2), indices)
    if choice == 2:
        count = draw(st.sampled_from([0, 1, 2, 3]))
        return tir.SeqStmt(tuple(statement(draw, visible, depth - 1) for _ in range(count)))
    if choice == 3:
        var = Var(draw(NAMES), draw(st.sampled_from(DTYPES)))
        value = expression(draw, visible, var.dtype, 2)
        return tir.LetStmt(var, value, statement(draw, Visible([*visible.variables, var], visible.buffers), depth - 1))
    if choice == 4:
        made = tir.buffer(draw(NAMES), (4, 4), draw(st.sampled_from(DTYPES)), draw(st.sampled_from(tir.SCOPES)))
        return tir.Allocate(made, statement(draw, Visible(visible.variables, [*visible.buffers, made]), depth - 1))
    if choice == 5:
        other = statement(draw, visible, depth - 1) if draw(st.booleans()) else None
        condition = expression(draw, visible, "bool", 1)
        return tir.IfThenElse(condition, statement(draw, visible, depth - 1), other)
    return loop(draw, visible, depth) if choice == 6 else block(draw, visible, depth)


def loop(draw: st.DrawFn, visible: Visible, depth: int) -> tir.Stmt:
    var = Var(draw(NAMES), draw(st.sampled_from(["int64", "int32"])))
    extent = expression(draw, visible, var.dtype, 1)
    kind = draw(st.sampled_from(tir.LOOP_KINDS))
    thread = "threadIdx.x" if kind == tir.THREAD else None
    body = statement(draw, Visible([*visible.variables, var], visible.buffers), depth - 1)
    annotations = {"step": draw(st.integers(0, 3))} if draw(st.booleans()) else {}
    return tir.For(var, extent, body, kind, thread, annotations)


def block(draw: st.DrawFn, visible: Visible, depth: int) -> tir.Stmt:
    """A block that binds all visible index variables: its body uses block variables only."""
    bound = visible.of("int64")
    inner = [Var(f"v{v.name}") for v in bound]
    iters = tuple(tir.IterVar(v, IntImm(8), draw(st.sampled_from("SR"))) for v in inner)
    local = tir.buffer("local", (4,), draw(st.sampled_from(DTYPES)))
    outside, seen = Visible(inner, visible.buffers), Visible(inner, [*visible.buffers, local])
    regions = tuple(
        tir.BufferRegion(b, tuple(tir.Range(expression(draw, outside, "int64", 1), IntImm(1)) for _ in b.shape))
        for b in visible.buffers
    )
    init = statement(draw, seen, 0) if draw(st.booleans()) else None
    body = statement(draw, seen, depth - 1)
    made = tir.Block(draw(NAMES), iters, regions, regions[:1], body, init, (local,))
    predicate = expression(draw, visible, "bool", 1) if draw(st.booleans()) else IntImm(1, "bool")
    return tir.BlockRealize(tuple(bound), predicate, made)


@st.composite
def prim_funcs(draw: st.DrawFn) -> tir.PrimFunc:
    n, m = Var("n"), Var("n")
    scalar = Var("s", draw(st.sampled_from(DTYPES)))
    buffers = [tir.buffer("A", (n, 4), "float32"), tir.buffer("A", (n * 2, m, n), draw(st.sampled_from(DTYPES)))]
    params = (buffers[0], scalar, buffers[1])
    body = statement(draw, Visible([n, m, scalar], buffers), 4)
    if draw(st.booleans()):
        body = tir.root_block(body)
    return tir.PrimFunc(params, body, {"global_symbol": "f"} if draw(st.booleans()) else {})


@settings(max_examples=200)
@given(st.data())
def test_expressions_round_trip(data: st.DataObject) -> None:
    made = data.draw(st.composite(lambda draw: expression(draw, Visible(), draw(st.sampled_from(DTYPES)), 5))())
    check_round_trip(tir.PrimFunc((), tir.Evaluate(made)))


@settings(max_examples=200)
@given(prim_funcs())
def test_tensor_functions_round_trip(func: tir.PrimFunc) -> None:
    check_round_trip(func)


@st.composite
def graph_functions(draw: st.DrawFn) -> rx.Function:
    n = Var("n")
    info = rx.TensorStructInfo((n, IntImm(4)), "float32")
    values: list[rx.Expr] = [rx.Var("x", info), rx.Var("lv", info)]
    params = tuple(values)
    blocks = []
    for _ in range(draw(st.integers(0, 3))):
        dataflow = draw(st.booleans())
        inner = list(values)
        bindings = [graph_binding(draw, inner, info, dataflow) for _ in range(draw(st.integers(0, 4)))]
        blocks.append(rx.BindingBlock(tuple(bindings), dataflow))
        values += [b.var for b in bindings if not b.var.dataflow]
    result = draw(st.sampled_from(values))
    return rx.Function(params, tuple(blocks), result, result.struct_info, {"global_symbol": "main"})


def graph_binding(draw: st.DrawFn, values: list[rx.Expr], info: rx.StructInfo, dataflow: bool) -> rx.Binding:
    a, b = (draw(st.sampled_from([v for v in values if v.struct_info is info])) for _ in range(2))
    choice = draw(st.integers(0, 3))
    if choice == 0:
        value: rx.Expr = rx.Tuple((a, b), rx.TupleStructInfo((info, info)))
    elif choice == 1:
        value = rx.TupleGetItem(rx.Tuple((a, b), rx.TupleStructInfo((info, info))), 1, info)
    elif choice == 2:
        value = a
    else:
        value = rx.Call(rx.Op(draw(st.sampled_from(["add", "my.op"]))), (a, b), {"k": (1, None)} if choice == 3 else {})
        value = value if value.target.name == "my.op" else rx.Call(rx.Op("add"), (a, b))
    result = rx.TupleStructInfo((info, info)) if choice == 0 else info
    var = rx.Var(draw(NAMES), result, dataflow and draw(st.booleans()))
    values.append(var)
    return rx.Binding(var, value)


@settings(max_examples=100)
@given(graph_functions())
def test_graph_functions_round_trip(func: rx.Function) -> None:
    check_round_trip(func)
    verify(func)
