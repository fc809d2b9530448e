"""IR nodes: their constructors, and traversal by class."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, fields, replace
from typing import ClassVar

import pytest

from mlc_compiler.ir.expr import BinaryOp, IntImm, Let, PrimExpr, Var
from mlc_compiler.ir.node import node
from mlc_compiler.ir.visitor import nodes_of, walk
from mlc_compiler.relax.nodes import TensorStructInfo
from mlc_compiler.script import parse
from mlc_compiler.tir.nodes import Block, BufferLoad, BufferStore, For, SeqStmt, Stmt

FUNCTION = """
@T.prim_func
def f(a: T.Buffer((8, 4), "float32"), b: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("sum"):
            v_i = T.axis.spatial(8, i)
            b[v_i] = a[v_i, 0] + a[v_i, T.Cast("int64", b[v_i])]
    for i in range(8):
        with T.block("double"):
            v_i = T.axis.spatial(8, i)
            b[v_i] = b[v_i] * T.float32(2.0)
"""


def test_fields_have_their_defaults():
    i, body = Var("i"), SeqStmt(())
    a, b = For(i, IntImm(4), body), For(i, extent=IntImm(4), body=body, kind="parallel", annotations={"schedule": 1})
    assert (i.dtype, a.kind, a.thread, a.annotations) == ("int64", "serial", None, {})
    assert (b.kind, b.annotations) == ("parallel", {"schedule": 1})
    assert a.annotations is not For(i, IntImm(4), body).annotations
    assert [f.name for f in fields(For)] == ["var", "extent", "body", "kind", "thread", "annotations"]


def test_what_runs_after_the_constructor():
    store = SeqStmt((SeqStmt(()), SeqStmt((SeqStmt(()),))))
    assert store.stmts == ()
    assert TensorStructInfo((IntImm(2), IntImm(3)), "float32").ndim == 2


def test_arguments_are_checked():
    with pytest.raises(TypeError, match=r"BinaryOp.__init__\(\) missing 1 required positional argument: 'b'"):
        BinaryOp("+", IntImm(1))  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'size'"):
        Var("i", size=4)  # type: ignore[call-arg]


def test_nodes_are_frozen_and_compared_by_identity():
    i = Var("i")
    with pytest.raises(FrozenInstanceError):
        i.name = "j"  # type: ignore[misc]
    loop = For(i, IntImm(4), SeqStmt(()))
    assert loop != For(i, loop.extent, loop.body) and loop == loop
    assert replace(loop, kind="unroll").kind == "unroll" and not hasattr(loop, "__dict__")
    assert pickle.loads(pickle.dumps(loop)).var.name == "i"


def test_class_variables_and_inherited_fields():
    @node
    class Base:
        first: int

    @node
    class Derived(Base):
        kinds: ClassVar[tuple[str, ...]] = ("x",)

        second: int = 2

    assert (Derived(1).first, Derived(1).second, Derived(1, 3).second, Derived.kinds) == (1, 2, 3, ("x",))


@pytest.mark.parametrize(
    "kinds", [(BufferLoad,), (BufferStore,), (Var, IntImm), (For, Block), (PrimExpr,), (Stmt, Let)]
)
def test_nodes_of_some_classes_in_the_order_of_walk(kinds: tuple[type, ...]):
    func = parse(FUNCTION)
    found = nodes_of(func, *kinds)
    assert found and all(map(lambda a, b: a is b, found, [n for n in walk(func) if isinstance(n, kinds)]))
    assert len(found) == sum(isinstance(n, kinds) for n in walk(func))
