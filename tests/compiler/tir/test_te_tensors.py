"""Inputs of tensor expressions, and the lifetime of their tensors."""

from __future__ import annotations

import gc
import weakref

import numpy as np

from mlc_compiler import ops, structural_equal, te, to_script
from mlc_compiler.interp import run_prim_func
from mlc_compiler.ir.simplify import simplify
from mlc_compiler.ir.visitor import substitute, walk

X = np.arange(6, dtype=np.float32)


def doubled(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda i: x[i] * 2.0, name="doubled")


def result_of(x: te.Tensor, y: te.Tensor) -> np.ndarray:
    out = np.empty_like(X)
    run_prim_func(te.create_prim_func([x, y]), X.copy(), out)
    return out


def live_tensors() -> int:
    gc.collect()
    return sum(issubclass(type(item), te.Tensor) for item in gc.get_objects())


def test_tensors_are_freed_after_the_last_use() -> None:
    x = te.placeholder((6,), name="x")
    y = doubled(x)
    refs = [weakref.ref(x), weakref.ref(y)]
    del x
    assert refs[0]() in y.inputs
    func = te.create_prim_func([*y.inputs, y])
    del y
    gc.collect()
    assert [r() for r in refs] == [None, None]
    assert [b.name for b in func.buffers] == ["x", "doubled"]


def test_a_long_run_keeps_no_tensor() -> None:
    before = live_tensors()
    for _ in range(500):
        x = te.placeholder((6,), name="x")
        te.create_prim_func([x, doubled(doubled(x))])
    del x
    assert live_tensors() == before


def test_tensors_referenced_only_by_the_expression_are_inputs() -> None:
    x = te.placeholder((6,), name="x")
    y = te.compute((6,), lambda i: doubled(x)[i] + 1.0, name="y")
    assert [t.name for t in y.inputs] == ["doubled"]
    assert np.array_equal(result_of(x, y), X * 2 + 1)


def test_loads_keep_their_tensors_after_others_are_freed() -> None:
    x = te.placeholder((6,), name="x")
    first = x[0]
    for n in range(100):  # buffers at the same addresses, one after the other
        assert doubled(te.placeholder((6,), name=f"x{n}")).inputs[0].name == f"x{n}"
    y = te.compute((6,), lambda i: first + x[i], name="y")
    assert y.inputs == (x,)
    assert np.array_equal(result_of(x, y), X)


def test_rewritten_loads_keep_their_tensors() -> None:
    x, v = te.placeholder((6,), name="x"), te.var("v")
    element = x[v + 1 - v]
    y = te.compute((6,), lambda i: substitute(x[v], {v: 5 - i}) + simplify(element), name="y")
    assert y.inputs == (x,)
    assert np.array_equal(result_of(x, y), X[::-1] + 1)


def test_a_function_does_not_reference_tensors() -> None:
    x = te.placeholder((6,), name="x")
    func = te.create_prim_func([x, ops.cumsum.te(doubled(x), axis=0)])
    assert not any(isinstance(n, te.Tensor) for n in walk(func))
    again = te.placeholder((6,), name="x")
    assert structural_equal(func, te.create_prim_func([again, ops.cumsum.te(doubled(again), axis=0)]))


def test_elements_print_and_compare_like_loads() -> None:
    x, i = te.placeholder((6,), name="x"), te.var("i")
    assert to_script(x[i] + 1.0) == "x[i] + T.float32(1.0)"
    assert structural_equal(x[i], x[i])
    assert repr(x) == "Tensor(x: float32[1d])"
