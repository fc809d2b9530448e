"""Small functions and schedule spaces for them, one of which has planted defects."""

from __future__ import annotations

from collections.abc import Callable

from mlc_compiler.ir.expr import Cast, PrimExpr, Var, const
from mlc_compiler.ir.visitor import Rewriter
from mlc_compiler.target import Target
from mlc_compiler.tir import te
from mlc_compiler.tir.nodes import BufferStore, PrimFunc, While
from mlc_compiler.tir.schedule import Schedule

CPU = Target("cpu")


def scaled(rows: int = 8, columns: int = 48) -> PrimFunc:
    """``b = 3 a``, float32 [rows, columns]."""
    a = te.placeholder((rows, columns), "float32", "a")
    return te.create_prim_func([a, te.compute((rows, columns), lambda i, j: a[i, j] * 3.0, name="b")])


def product(m: int = 16, n: int = 32, k: int = 24) -> PrimFunc:
    """``c = a @ b``, float32."""
    a, b = te.placeholder((m, k), "float32", "a"), te.placeholder((k, n), "float32", "b")
    r = te.reduce_axis(k, "r")
    return te.create_prim_func([a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")])


def tiled(s: Schedule) -> None:
    """A space that tiles the columns."""
    _, j = s.get_loops("b")
    s.split(j, s.sample_perfect_tile(j, n=2))


def _computes(element: Callable[[te.Tensor, Var, Var], PrimExpr]) -> Callable[[PrimFunc], PrimFunc]:
    """A defect: replaces ``scaled`` by another function of the same parameters."""
    a = te.placeholder((8, 48), "float32", "a")
    made = te.create_prim_func([a, te.compute((8, 48), lambda i, j: element(a, i, j), name="b")])
    return lambda _: made


class _Endless(Rewriter):
    def rewrite_BufferStore(self, node: BufferStore) -> While:
        return While(node.buffer[node.indices] > const(-1e30, "float32"), node)


DEFECTS = {
    "wrong": _computes(lambda a, i, j: a[i, j] * 3.001),
    "crash": _computes(lambda a, i, j: a[Cast("int64", a[i, j] * 1e15), j] * 3.0),
    "hang": _Endless(),
}


def with_defects(s: Schedule) -> None:
    """A space of four candidates: the unchanged function, and one for each defect."""
    which = s.sample_categorical([0, 1, 2, 3], [0.25] * 4, decision=0)
    if which:
        s.func = list(DEFECTS.values())[which - 1](s.func)
