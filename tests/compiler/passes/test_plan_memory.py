"""Memory plans: values with overlapping lifetimes share no bytes, and results are unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings

from mlc_compiler.interp import run_function
from mlc_compiler.interp.evaluate import evaluate
from mlc_compiler.ir.expr import PrimExpr, as_expr
from mlc_compiler.ir.module import GlobalVar
from mlc_compiler.ir.visitor import free_vars
from mlc_compiler.passes.lift_allocs import LiftAllocs
from mlc_compiler.passes.plan_memory import PlanError, PlanMemory
from mlc_compiler.relax.nodes import Call, ExternFunc, Function, Op
from mlc_compiler.script import parse
from mlc_compiler.verifier import verify
from tests.compiler.passes.kernel_graphs import (
    RESULTS,
    STEPS,
    Steps,
    arguments,
    build,
    negate,
    planned,
    run_planned,
)
from tests.compiler.script.round_trip import check_round_trip


@dataclass
class Place:
    """An allocation of a planned function: its bytes, and the calls between which it is used."""

    begin: int
    end: int
    first: int = -1
    last: int = -1


def number(value: int | PrimExpr, sizes: dict[str, int]) -> int:
    expr = as_expr(value)
    return evaluate(expr, {id(v): sizes[v.name] for v in free_vars(expr)})


def places(func: Function, sizes: dict[str, int]) -> list[Place]:
    """The allocations of a planned function when it is called with these sizes."""
    found: dict[int, Place] = {}
    step = 0
    for binding in func.bindings:
        call = binding.value
        assert isinstance(call, Call)
        if isinstance(call.target, Op) and call.target.name == "builtin.alloc_tensor":
            begin = number(call.attrs["offset"], sizes)
            info = binding.var.struct_info
            count = int(np.prod([number(s, sizes) for s in info.shape])) * np.dtype(info.dtype).itemsize
            assert count <= number(call.attrs["nbytes"], sizes)
            assert begin % 64 == 0
            found[id(binding.var)] = Place(begin, begin + count)
        elif isinstance(call.target, Op) and call.target.name == "reshape":
            found[id(binding.var)] = found.get(id(call.args[0]), Place(0, 0))
        elif isinstance(call.target, GlobalVar | ExternFunc):
            for place in (found[id(a)] for a in call.args if id(a) in found):
                place.first, place.last = (step if place.first < 0 else place.first), step
            step += 1
    return list(found.values())


def check_no_overlap(func: Function, sizes: dict[str, int]) -> None:
    total = number(func.attrs["workspace_bytes"], sizes)
    live = [p for p in places(func, sizes) if p.first >= 0]
    assert all(p.end <= total for p in live)
    for a, b in combinations(live, 2):
        together = a is not b and a.first <= b.last and b.first <= a.last
        assert not (together and a.begin < b.end and b.begin < a.end), (a, b)


@settings(max_examples=60)
@given(STEPS, RESULTS)
def test_random_graphs(steps: Steps, results: list[int]) -> None:
    mod = build(steps, results)
    expected_args, args = arguments(), arguments()
    expected = run_function(mod, "main", *expected_args, externs={"negate": negate})
    plan = planned(mod)
    verify(plan)
    check_round_trip(plan)
    func = plan["main"]
    assert isinstance(func, Function)
    for n, m in ((0, 0), (1, 1), (6, 2), (3, 100)):
        check_no_overlap(func, {"n": n, "m": m})
    for got, want in zip(run_planned(plan, args), expected, strict=True):
        np.testing.assert_array_equal(got, want)
    for got, want in zip([args[0], args[1], *args[2]], [*expected_args[:2], *expected_args[2]], strict=True):
        np.testing.assert_array_equal(got, want)


TAIL = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def tail(var_x: T.handle, var_y: T.handle):
        n = T.int64()
        r = T.int64()
        x = T.match_buffer(var_x, (n, 4), "float32")
        y = T.match_buffer(var_y, (r, 4), "float32")
        for i, j in T.grid(r, 4):
            y[i, j] = x[0, j] + T.Cast("float32", i)

    @T.prim_func(private=True)
    def sums(var_x: T.handle, y: T.Buffer((4,), "float32")):
        r = T.int64()
        x = T.match_buffer(var_x, (r, 4), "float32")
        for j in range(4):
            y[j] = T.float32(0)
            for i in range(r):
                y[j] = y[j] + x[i, j]

    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        n = T.int64()
        R.func_attr({"num_input": 1, "tir_var_upper_bound": {"n": 16}})
        cls = Module
        with R.dataflow():
            a = R.call_tir(cls.tail, (x,), out_sinfo=R.Tensor((SIZE, 4), "float32"))
            b = R.call_tir(cls.tail, (x,), out_sinfo=R.Tensor((3, 4), "float32"))
            c = R.call_tir(cls.sums, (a,), out_sinfo=R.Tensor((4,), "float32"))
            d = R.call_tir(cls.sums, (b,), out_sinfo=R.Tensor((4,), "float32"))
            R.output(c, d)
        return (c, d)
"""


@pytest.mark.parametrize(
    "size", ["n + 2", "16 - n", "(n + 3) // 4", "n % 16", "n * n", "T.max(16 - n, 3)", "T.min(n, 5)"]
)
def test_bounds_are_those_of_the_size(size: str) -> None:
    """The maximum of a size is not always its value for the largest ``n``."""
    mod = parse(TAIL.replace("SIZE", size))
    func = PlanMemory().run(mod)["main"]
    assert isinstance(func, Function) and isinstance(func.attrs["workspace_bytes"], int)
    for n in range(17):
        check_no_overlap(func, {"n": n, "m": 0})


def test_a_size_that_hangs_on_an_unbounded_one_is_not_bounded() -> None:
    mod = parse(
        TAIL.replace("SIZE", "T.max(m - n, 0)")
        .replace('x: R.Tensor(("n", 4), "float32")', 'x: R.Tensor(("n", 4), "float32"), s: R.Shape(["m"])')
        .replace(
            "        n = T.int64()\n        R.func", "        n = T.int64()\n        m = T.int64()\n        R.func"
        )
    )
    func = PlanMemory().run(mod)["main"]
    assert isinstance(func, Function)
    for n, m in ((0, 40), (1, 40), (16, 40), (16, 3)):
        check_no_overlap(func, {"n": n, "m": m})


SCALARS = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def shift(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32"), by: T.int64):
        wide = T.decl_buffer((4 + by,), "float32")
        for i in T.parallel(4):
            wide[i + by] = x[i]
        for i in T.parallel(4):
            y[i] = wide[i + by]

    @R.function
    def main(x: R.Tensor((4,), "float32"), s: R.Shape(["m"])) -> R.Tensor((4,), "float32"):
        m = T.int64()
        R.func_attr({"num_input": 2})
        cls = Module
        with R.dataflow():
            y = R.call_tir(cls.shift, (x,), out_sinfo=R.Tensor((4,), "float32"), tir_vars=R.shape([m * 2]))
            R.output(y)
        return y
"""


def test_scratch_whose_size_is_a_scalar_argument() -> None:
    mod = PlanMemory().run(LiftAllocs().run(parse(SCALARS)))
    verify(mod)
    x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    run_function(mod, "main", x, (5,), y)
    np.testing.assert_array_equal(y, x)
    func = mod["main"]
    assert isinstance(func, Function)
    assert number(func.attrs["workspace_bytes"], {"m": 50}) == 448


CONSTANT = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def bump(x: T.Buffer((2,), "float32")):
        for i in range(2):
            x[i] = x[i] + T.float32(1)

    @R.function
    def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        cls = Module
        with R.dataflow():
            y = R.call_tir_inplace(
                cls.bump, (R.const([1.0, 2.0], "float32"),), out_sinfo=R.Tensor((2,), "float32"), inplace_indices=(0,)
            )
            R.output(y)
        return y
"""


def test_constants_are_not_written() -> None:
    with pytest.raises(PlanError, match="main: bump writes a constant"):
        PlanMemory().run(parse(CONSTANT))
