"""Macros and Python functions called from tensor functions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from mlc_compiler.interp import run_prim_func
from mlc_compiler.ir.structural import structural_equal
from mlc_compiler.script import ScriptError, T, expand, parse, script
from mlc_compiler.tir import te
from mlc_compiler.tir.nodes import Buffer, PrimFunc, buffer

N = 8


def clamped(value, low, high):
    """A Python function that builds an expression from expressions."""
    return te.max(te.min(value, high), low)


@T.macro
def scale_row(target, source, row, factor, write):
    partial = T.decl_buffer((N,), "float32", scope="local")
    for i in T.vectorized(N):
        partial[i] = source[row, i] * factor
    if write:
        for i in range(N):
            target[row, clamped(i, 0, N - 1)] = partial[i]


def scaled(factor: float):
    @T.prim_func(private=True)
    def func(a: T.Buffer((3, N), "float32"), b: T.Buffer((3, N), "float32")):
        N = 3  # does not affect the macro, which uses its own N
        for row in range(N):
            scale_row(b, a, row, factor=T.float32(factor), write=True)

    return func


def test_a_macro_expands_where_it_is_called():
    a = np.arange(24, dtype=np.float32).reshape(3, 8)
    b = np.zeros_like(a)
    func = scaled(2.0)
    run_prim_func(func, a, b)
    np.testing.assert_array_equal(b, 2 * a)
    assert structural_equal(parse(script(func)), func)
    assert "T.max(T.min(i, 7), 0)" in script(func)


def test_wrong_arguments_point_at_the_call():
    with pytest.raises(ScriptError, match=r"scale_row takes \(target, .*, write\); got 2 arguments") as error:

        @T.prim_func
        def func(a: T.Buffer((3, 8), "float32"), b: T.Buffer((3, 8), "float32")):
            scale_row(b, a)

    assert "scale_row(b, a)" in str(error.value)


def test_errors_inside_point_at_the_macro():
    @T.macro
    def broken(target):
        target[0] = missing + 1.0  # noqa: F821

    with pytest.raises(ScriptError, match="missing") as error:

        @T.prim_func
        def func(a: T.Buffer((8,), "float32")):
            broken(a)

    assert "target[0] = missing + 1.0" in str(error.value)


def test_text_calls_no_python():
    text = "@T.prim_func\ndef f(a: T.Buffer((8,), 'int64')):\n    a[0] = len(clamped(1, 2, 3))\n"
    with pytest.raises(ScriptError, match="clamped"):
        parse(text)


@dataclass
class Rows:
    """A dataclass of buffers, the argument of a macro."""

    source: Buffer
    target: Buffer
    width: int
    factor: float

    def scaled(self, row, i):
        return self.source[row, i] * self.factor


@T.macro
def copy_rows(rows, count):
    for row in range(count):
        for i in T.vectorized(rows.width):
            rows.target[row, i] = rows.scaled(row, i)


def test_expanded_from_python_with_a_dataclass_of_buffers():
    rows = Rows(buffer("a", (3, N), "float32"), buffer("b", (3, N), "float32"), N, 3.0)
    func = PrimFunc((rows.source, rows.target), expand(copy_rows, rows, 3), {})
    a = np.arange(24, dtype=np.float32).reshape(3, 8)
    b = np.zeros_like(a)
    run_prim_func(func, a, b)
    np.testing.assert_array_equal(b, 3 * a)


def test_an_unknown_field_points_at_the_macro():
    @T.macro
    def broken(rows):
        rows.target[0, 0] = rows.missing

    rows = Rows(buffer("a", (3, N), "float32"), buffer("b", (3, N), "float32"), N, 3.0)
    with pytest.raises(ScriptError, match="no attribute 'missing'") as error:
        expand(broken, rows)
    assert "rows.target[0, 0] = rows.missing" in str(error.value)
