"""Random graph functions over a few kernels, for tests of memory planning and barriers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mlc_compiler.interp import run_function
from mlc_compiler.interp.evaluate import evaluate
from mlc_compiler.ir.expr import PrimExpr, as_expr
from mlc_compiler.ir.expr import Var as Size
from mlc_compiler.ir.module import GlobalVar, IRModule
from mlc_compiler.ir.visitor import free_vars
from mlc_compiler.passes.copy_results import CopyResults
from mlc_compiler.passes.lift_allocs import LiftAllocs
from mlc_compiler.passes.plan_memory import PlanMemory
from mlc_compiler.relax import ops
from mlc_compiler.relax.builder import BlockBuilder, call_tir, call_tir_inplace
from mlc_compiler.relax.info import get_item, make_tuple, tensor_info
from mlc_compiler.relax.nodes import Call, Expr, ExternFunc, Function, Op, TupleStructInfo, Var
from mlc_compiler.script import parse

WIDTH = 4
FIXED = 5
SIZES = {"n": 3, "m": 7}
BOUNDS = {"n": 6}  # m is unbounded

# Every kernel works on any number of rows; ``reverse`` needs scratch memory.
KERNELS = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def next(var_x: T.handle, var_y: T.handle):
        r = T.int64()
        x = T.match_buffer(var_x, (r, 4), "float32")
        y = T.match_buffer(var_y, (r, 4), "float32")
        for i in T.parallel(r):
            for j in range(4):
                y[i, j] = x[i, j] + T.float32(1)

    @T.prim_func(private=True)
    def add(var_a: T.handle, var_b: T.handle, var_y: T.handle):
        r = T.int64()
        a = T.match_buffer(var_a, (r, 4), "float32")
        b = T.match_buffer(var_b, (r, 4), "float32")
        y = T.match_buffer(var_y, (r, 4), "float32")
        for i in T.parallel(r):
            for j in range(4):
                y[i, j] = a[i, j] + b[i, j]

    @T.prim_func(private=True)
    def both(var_x: T.handle, var_y: T.handle, var_z: T.handle):
        r = T.int64()
        x = T.match_buffer(var_x, (r, 4), "float32")
        y = T.match_buffer(var_y, (r, 4), "float32")
        z = T.match_buffer(var_z, (r, 4), "float32")
        for i in T.parallel(r):
            for j in range(4):
                y[i, j] = x[i, j] - T.float32(2)
                z[i, j] = x[i, 3 - j]

    @T.prim_func(private=True)
    def bump(var_x: T.handle):
        r = T.int64()
        x = T.match_buffer(var_x, (r, 4), "float32")
        for i in T.parallel(r):
            for j in range(4):
                x[i, j] = x[i, j] + T.float32(10)

    @T.prim_func(private=True)
    def reverse(var_x: T.handle, var_y: T.handle):
        r = T.int64()
        x = T.match_buffer(var_x, (r, 4), "float32")
        y = T.match_buffer(var_y, (r, 4), "float32")
        s = T.decl_buffer((r, 4), "float32")
        t = T.decl_buffer((2, r), "float64")
        for i in T.parallel(r):
            for j in range(4):
                s[r - 1 - i, j] = x[i, j]
        for i in T.parallel(r):
            t[1, i] = T.Cast("float64", s[i, 0])
        for i in T.parallel(r):
            for j in range(4):
                y[i, j] = s[i, j] + T.Cast("float32", t[1, i])

    @T.prim_func(private=True)
    def repeat(var_x: T.handle, var_y: T.handle):
        r = T.int64()
        x = T.match_buffer(var_x, (r, 4), "float32")
        y = T.match_buffer(var_y, (r * 2, 4), "float32")
        for i in T.parallel(r * 2):
            for j in range(4):
                y[i, j] = x[i // 2, j]
"""


@dataclass
class Graph:
    """The function being built: its values with their numbers of rows."""

    builder: BlockBuilder
    values: list[tuple[Expr, PrimExpr]] = field(default_factory=list)
    twice: dict[PrimExpr, PrimExpr] = field(default_factory=dict)

    def step(self, kind: str, a: int, b: int) -> None:
        """Append a call of a kernel, view or registered function on earlier values, chosen by index."""
        x, rows = self.values[a % len(self.values)]
        alike = [v for v, r in self.values if r is rows]
        new_rows = self.twice.setdefault(rows, rows * 2) if kind == "repeat" else rows
        results = self._results(kind, x, alike[b % len(alike)], rows, new_rows)
        self.values += [(v, new_rows) for v in results]

    def _results(self, kind: str, x: Expr, other: Expr, rows: PrimExpr, new_rows: PrimExpr) -> list[Expr]:
        info = tensor_info((new_rows, WIDTH), "float32")
        if kind == "view":
            halves = self.builder.emit(ops.reshape(x, (rows, 2, 2)))
            return [self.builder.emit(ops.reshape(halves, (rows, WIDTH)))]
        if kind == "bump":
            return [self.builder.emit(call_tir_inplace(GlobalVar("bump"), [x], [0], info))]
        if kind == "registered":
            args = (ExternFunc("negate"), make_tuple([x]))
            return [self.builder.emit(Call(Op("call_dps_packed"), args, {}, info, info))]
        if kind == "both":
            both = self.builder.emit(call_tir(GlobalVar("both"), [x], TupleStructInfo((info, info))))
            return [get_item(both, 0), get_item(both, 1)]
        inputs = [x, other] if kind == "add" else [x]
        return [self.builder.emit(call_tir(GlobalVar(kind), inputs, info))]


KINDS = ("next", "add", "both", "bump", "reverse", "repeat", "view", "registered")
Steps = list[tuple[str, int, int]]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=14)
RESULTS = st.lists(st.integers(0, 40), min_size=1, max_size=3)


def build(steps: Steps, results: list[int]) -> IRModule:
    """main(x [n, 4], y [m, 4], (c [5, 4], d [5, 4])) that returns a tuple of some of its values."""
    builder = BlockBuilder(parse(KERNELS))
    n, m, fixed = Size("n"), Size("m"), as_expr(FIXED)
    x, y = Var("x", tensor_info((n, WIDTH), "float32")), Var("y", tensor_info((m, WIDTH), "float32"))
    constants = tensor_info((FIXED, WIDTH), "float32")
    weights = Var("weights", TupleStructInfo((constants, constants)))
    with builder.function("main", [x, y, weights], {"num_input": 2, "tir_var_upper_bound": BOUNDS}):
        c, d = (builder.emit(get_item(weights, i)) for i in range(2))
        graph = Graph(builder, [(x, n), (y, m), (c, fixed), (d, fixed)])
        for step in steps:
            graph.step(*step)
        builder.emit_func_output(make_tuple([graph.values[-1 - i % len(graph.values)][0] for i in results]))
    return builder.get()


def planned(mod: IRModule) -> IRModule:
    for step in (CopyResults(), LiftAllocs(), PlanMemory()):
        mod = step.run(mod)
    return mod


def arguments() -> list[Any]:
    rng = np.random.default_rng(0)
    rows = (SIZES["n"], SIZES["m"], FIXED, FIXED)
    x, y, c, d = (rng.integers(-50, 50, (r, WIDTH)).astype(np.float32) for r in rows)
    return [x, y, (c, d)]


def negate(x: np.ndarray, result: np.ndarray) -> None:
    result[...] = -x


def run_planned(mod: IRModule, args: list[Any]) -> tuple[np.ndarray, ...]:
    """The results of ``main`` after memory planning: its outputs, and the inputs that it has written."""
    func = mod["main"]
    assert isinstance(func, Function)
    count = int(func.attrs["num_outputs"])
    env = {id(v): SIZES[v.name] for v in free_vars([p.struct_info for p in func.params])}
    shapes = [[evaluate(s, env) for s in p.struct_info.shape] for p in func.params[len(func.params) - count :]]
    outputs = [np.full(shape, np.nan, np.float32) for shape in shapes]
    run_function(mod, "main", *args, *outputs, externs={"negate": negate})
    flat = [args[0], args[1], *args[2]]
    return tuple(outputs[r["output"]] if "output" in r else flat[r["input"]] for r in func.attrs["result"])
