"""Operations made from graph operators: signatures, calls, docstrings."""

from __future__ import annotations

import inspect
import pickle
import pydoc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mlc_compiler import nn
from mlc_compiler.interp import run_function
from mlc_compiler.nn import op, spec
from mlc_compiler.nn.op.traced import traced
from mlc_compiler.relax import ops
from mlc_compiler.relax.ops import OperatorError

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def result_of(f: Callable[..., Any], *args: np.ndarray) -> np.ndarray:
    inputs = {f"x{i}": spec.Tensor(a.shape, str(a.dtype)) for i, a in enumerate(args)}
    mod, _ = nn.Module().export(spec.ModuleSpec({"main": spec.Function(f, inputs, "none")}))
    return run_function(mod, "main", *args)


SIGNATURES = {
    "exp": "(x: Tensor) -> Tensor",
    "add": "(a: Tensor | int | float, b: Tensor | int | float) -> Tensor",
    "minimum": "(x1: Tensor | int | float, x2: Tensor | int | float) -> Tensor",
    "clip": "(x: Tensor, min: float, max: float) -> Tensor",
    "sum": "(x: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor",
    "argsort": "(x: Tensor, axis: int = -1, descending: bool = False, dtype: str = 'int32') -> Tensor",
    "linear": "(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor",
    "broadcast_to": "(x: Tensor, shape: Sequence[int | PrimExpr]) -> Tensor",
    "stack": "(x: Sequence[Tensor], axis: int = 0) -> Tensor",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name: str) -> None:
    signature = str(inspect.signature(getattr(op, name)))
    for prefix in ("mlc_compiler.nn.tensor.", "mlc_compiler.ir.expr.", "collections.abc."):
        signature = signature.replace(prefix, "")
    assert signature == SIGNATURES[name]


def test_every_operation_has_a_docstring() -> None:
    assert [name for name in op.__all__ if not (getattr(op, name).__doc__ or "").strip()] == []
    assert all(getattr(op, name).__name__ == name for name in op.__all__)
    text = pydoc.plain(pydoc.render_doc(op.variance))
    assert "function variance in module mlc_compiler.nn.op" in text
    assert "The mean squared deviation from the mean over ``axis``" in text
    assert pickle.loads(pickle.dumps(op.variance)) is op.variance


def test_parameters_by_name_and_by_place() -> None:
    assert np.array_equal(result_of(lambda x: op.subtract(b=x, a=1), X), 1 - X)
    assert np.array_equal(result_of(lambda x: op.clip(x, 2, max=5), X), X.clip(2, 5))
    assert np.array_equal(result_of(lambda x: op.sum(x, [0], True), X), X.sum(0, keepdims=True))
    assert np.array_equal(result_of(lambda x: op.stack(iter([x, x]), 2), X), np.stack([X, X], 2))
    assert np.array_equal(result_of(lambda x: op.linear(weight=x, x=x), X), X @ X.T)


def test_an_operator_with_another_name_for_its_operand() -> None:
    double = traced(ops.repeat, {"rows": nn.Tensor})
    assert list(inspect.signature(double).parameters) == ["rows", "repeats", "axis"]
    assert np.array_equal(result_of(lambda x: double(rows=x, repeats=2, axis=0), X), X.repeat(2, 0))


@pytest.mark.parametrize(
    ("f", "error", "message"),
    [
        (lambda x: op.add(x), TypeError, r"add\(a, b\): missing a required argument: 'b'"),
        (lambda x: op.softmax(x, 0, 1), TypeError, r"softmax\(x, axis=-1\): too many positional arguments"),
        (lambda x: op.sum(x, axes=0), TypeError, r"sum\(x, axis=None, keepdims=False\): got an unexpected keyword"),
        (lambda x: op.sum(x, 5), OperatorError, r"sum\(float32\(3, 4\)\): axis.*5"),
        (lambda x: op.exp("x"), OperatorError, "exp: x is a str; expected a Tensor or a number"),
        (lambda x: op.exp([x]), OperatorError, "exp: x is a list; expected a Tensor or a number"),
        (lambda x: op.broadcast_to(x, 3), OperatorError, "broadcast_to: argument shape"),
        (lambda x: op.clip(x, "0", 1), OperatorError, r"clip\(float32\(3, 4\)\): min: got '0'; expected float"),
    ],
)
def test_mismatched_calls(f: Callable[..., Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        result_of(f, X)
