"""Modules as immutable values, and the one way to change them in place."""

from __future__ import annotations

import pytest

from mlc_compiler import IRModule, T
from mlc_compiler.ir.shape import Shape
from mlc_errors import UnsupportedError


@T.prim_func
def double(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] * T.float32(2)


def test_a_module_of_one_function_has_the_name_of_its_symbol():
    assert list(IRModule.from_expr(double)) == ["double"]
    assert list(IRModule.from_expr(double.without_attr("global_symbol"))) == ["main"]


def test_update_func_changes_the_module_and_with_function_a_copy():
    mod = IRModule.from_expr(double)
    other = double.with_attr("mark", 1)
    assert mod.with_function("double", other)["double"] is other and mod["double"] is double
    mod.update_func(mod.get_global_var("double"), other)
    assert mod["double"] is other


def test_attributes_are_set_one_by_one_or_together():
    assert double.with_attr("a", 1).with_attr({"b": 2}).attrs == {"global_symbol": "double", "a": 1, "b": 2}
    assert IRModule().with_attr({"a": 1, "b": 2}).attrs == {"a": 1, "b": 2}


def test_the_printer_has_one_format(capsys: pytest.CaptureFixture[str]):
    double.show(black_format=False)
    assert "def double(" in capsys.readouterr().out
    with pytest.raises(UnsupportedError, match="black_format is True"):
        double.show(black_format=True)


def test_shapes_join_lists_and_print_as_lists():
    shape = Shape((1, 2, 3))
    assert shape[:-1] + [7] == (1, 2, 7) and repr(shape[:-1] + [7]) == "[1, 2, 7]"
    assert shape == (1, 2, 3) and shape[-1] == 3
