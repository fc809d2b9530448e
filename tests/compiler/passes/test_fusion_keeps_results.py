"""Random graphs: results are bitwise equal after every pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_compiler.interp import run_function
from mlc_compiler.ir.expr import IntImm
from mlc_compiler.ir.expr import Var as Size
from mlc_compiler.ir.module import IRModule
from mlc_compiler.ir.structural import first_difference
from mlc_compiler.passes.annotate_patterns import AnnotatePatterns
from mlc_compiler.passes.common_subexpressions import CommonSubexpressions
from mlc_compiler.passes.eliminate_dead import EliminateDead
from mlc_compiler.passes.fold_constants import FoldConstants
from mlc_compiler.passes.fuse_ops import FuseOps
from mlc_compiler.passes.fuse_tensor_functions import FuseTensorFunctions
from mlc_compiler.passes.legalize import Legalize
from mlc_compiler.relax import ops
from mlc_compiler.relax.builder import BlockBuilder, call_tir_inplace
from mlc_compiler.relax.info import get_item, make_tuple, tensor_info
from mlc_compiler.relax.nodes import Expr, Var, constant
from mlc_compiler.script import parse, to_text
from mlc_compiler.tir import nodes as tir

PASSES = (
    *(FoldConstants(), CommonSubexpressions(), Legalize(), CommonSubexpressions()),
    *(AnnotatePatterns(), FuseOps(), FuseTensorFunctions(), EliminateDead()),
)
WIDTH = 4
ROWS = 3


def _swap_halves(x: Expr) -> Expr:
    halves = BlockBuilder.current().emit(ops.split(x, indices_or_sections=2, axis=1))
    return ops.concat([get_item(halves, 1), get_item(halves, 0)], axis=1)


def _gate(x: Expr) -> Expr:
    left, right = (_item(ops.split(ops.concat([x, x], axis=1), indices_or_sections=2, axis=1), i) for i in range(2))
    return ops.multiply(ops.silu(left), right)


def _item(value: Expr, index: int) -> Expr:
    return get_item(BlockBuilder.current().emit(value), index)


def _doubled_in_place(x: Expr) -> Expr:
    n = Size("n")
    buffer = tir.buffer("a", (n, WIDTH))
    i, j = Size("i"), Size("j")
    store = tir.BufferStore(buffer, buffer[i, j] * 2, (i, j))
    double = tir.PrimFunc((buffer,), tir.For(i, n, tir.For(j, IntImm(WIDTH), store)), {"tir.is_scheduled": True})
    return call_tir_inplace(BlockBuilder.current().add_func(double, "double"), [x], [0], x.struct_info)


def _read_around_write(x: Expr) -> Expr:
    emit = BlockBuilder.current().emit
    before = emit(ops.negative(x))
    emit(_doubled_in_place(x))
    return ops.multiply(before, emit(ops.negative(x)))


UNARY: dict[str, Callable[[Expr], Expr]] = {
    "negative": ops.negative,
    "relu": ops.relu,
    "softmax": ops.softmax,
    "transpose": lambda x: ops.permute_dims(ops.permute_dims(x, axes=(1, 0)), axes=(1, 0)),
    "reshape": lambda x: ops.reshape(ops.reshape(x, (ROWS, 2, 2)), (ROWS, WIDTH)),
    "swap_halves": _swap_halves,
    "gate": _gate,
    "in_place": _doubled_in_place,
    "read_around_write": _read_around_write,
    "bias": lambda x: ops.add(x, ops.negative(constant(np.arange(WIDTH, dtype=np.float32)))),
}
BINARY: dict[str, Callable[[Expr, Expr], Expr]] = {"add": ops.add, "multiply": ops.multiply, "maximum": ops.maximum}


@dataclass(frozen=True)
class Step:
    """An operator applied to earlier values, which are chosen by index."""

    operator: str
    a: int
    b: int

    def apply(self, values: list[Expr], weights: list[Expr]) -> Expr:
        a = values[self.a % len(values)]
        if self.operator in UNARY:
            return UNARY[self.operator](a)
        if self.operator == "in_place_weight":
            weights.append(BlockBuilder.current().emit(_doubled_in_place(weights[2 + self.b % (len(weights) - 2)])))
            return a
        if self.operator in BINARY:
            return BINARY[self.operator](a, values[self.b % len(values)])
        return ops.linear(a, weights[self.b % len(weights)])


def build(steps: list[Step], symbolic: bool) -> IRModule:
    """A function of x [rows, 4] and two weights [4, 4] that returns its last two values."""
    builder = BlockBuilder()
    x = Var("x", tensor_info((Size("n") if symbolic else ROWS, WIDTH), "float32"))
    weights = [Var(f"w{i}", tensor_info((WIDTH, WIDTH), "float32")) for i in range(2)]
    with builder.function("main", [x, *weights], {"num_input": 1}):
        with builder.dataflow():
            values: list[Expr] = [x, builder.emit(ops.negative(x))]
            decoded = [*weights, *(builder.emit(ops.multiply(w, w)) for w in weights)]
            for step in steps:
                values.append(builder.emit(step.apply(values, decoded)))
            result = builder.emit_output(make_tuple(values[-2:]))
        builder.emit_func_output(result)
    return builder.get()


OPERATORS = st.sampled_from([*UNARY, *BINARY, "linear", "in_place_weight"])
STEPS = st.lists(st.builds(Step, OPERATORS, st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=10)


@settings(max_examples=30)
@given(STEPS, st.booleans())
def test_every_pass_keeps_results_and_text(steps: list[Step], symbolic: bool) -> None:
    symbolic &= all(step.operator != "reshape" for step in steps)
    mod = build(steps, symbolic)
    rng = np.random.default_rng(0)
    args = [rng.standard_normal((size, WIDTH), np.float32) for size in (ROWS, WIDTH, WIDTH)]
    expected = run_function(mod, "main", *(a.copy() for a in args))
    for step in PASSES:
        mod = step.run(mod)
        printed = to_text(mod)
        assert first_difference(mod, parse(printed.text, printed.constants)) is None, step.name
    for result, value in zip(run_function(mod, "main", *(a.copy() for a in args)), expected):
        np.testing.assert_array_equal(result, value)
