"""Folding of constants that are too large for a golden file."""

from __future__ import annotations

import numpy as np

from mlc_compiler.ir.module import IRModule
from mlc_compiler.passes.fold_constants import FoldConstants
from mlc_compiler.passes.legalize import Legalize
from mlc_compiler.relax import ops
from mlc_compiler.relax.builder import BlockBuilder
from mlc_compiler.relax.info import get_item, tensor_info
from mlc_compiler.relax.nodes import Call, Constant, Function, Var, constant

TABLE = np.arange(24, dtype=np.float32).reshape(4, 6)


def _halves_swapped() -> IRModule:
    builder = BlockBuilder()
    x = Var("x", tensor_info((4, 6), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            halves = builder.emit(ops.split(constant(TABLE), indices_or_sections=2, axis=1))
            swapped = builder.emit(ops.concat([get_item(halves, 1), get_item(halves, 0)], axis=1))
            out = builder.emit_output(ops.add(x, swapped))
        builder.emit_func_output(out)
    return builder.get()


def _only_binding(func: Function) -> Call:
    (binding,) = func.bindings
    assert isinstance(binding.value, Call)
    return binding.value


def test_tuples_of_constants_are_folded_through() -> None:
    call = _only_binding(FoldConstants().run(_halves_swapped())["main"])
    assert isinstance(call.args[1], Constant)
    np.testing.assert_array_equal(call.args[1].data, np.roll(TABLE, 3, axis=1))


def test_call_tir_is_folded_too() -> None:
    call = _only_binding(FoldConstants().run(Legalize().run(_halves_swapped()))["main"])
    np.testing.assert_array_equal(call.args[1].fields[1].data, np.roll(TABLE, 3, axis=1))


def test_large_constants_are_left_alone() -> None:
    mod = _halves_swapped()
    assert len(FoldConstants(max_elements=23).run(mod)["main"].bindings) == len(mod["main"].bindings)
