"""Sums of hundreds of terms work in every public function, which restores Python's recursion limit."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlc_compiler import (
    BlockBuilder,
    Schedule,
    bind_params,
    build,
    emit_llvm,
    ops,
    parse,
    structural_equal,
    te,
    tensor_var,
    to_script,
)
from mlc_compiler.interp import run_function, run_prim_func
from mlc_compiler.ir.structural import first_difference
from mlc_compiler.pipeline import entries, run_passes
from mlc_compiler.script import ScriptError, expand
from mlc_compiler.verifier import VerifyError, verify

TERMS = 900
SUM = " + ".join(f"A[vi, {i % 8}] * T.float32({i})" for i in range(TERMS))
FUNCTION = f"""@T.prim_func
def f(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = {SUM}
"""
ONES, RESULT = np.ones((4, 8), np.float32), np.full(4, sum(range(TERMS)), np.float32)


@pytest.fixture(autouse=True)
def limit_of_1000() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    assert sys.getrecursionlimit() == 1000
    sys.setrecursionlimit(before)


@pytest.fixture
def mod() -> Any:
    return parse(FUNCTION)


def interpreted(func: Any) -> np.ndarray:
    out = np.zeros(4, np.float32)
    run_prim_func(func, ONES, out)
    return out


def test_text(mod: Any) -> None:
    assert structural_equal(parse(to_script(mod)), mod)
    difference = first_difference(mod, parse(FUNCTION.replace("899)", "898)")))
    assert "value=899.0" in difference and "value=898.0" in difference
    assert str(mod["f"]).count("T.float32(") == TERMS


def test_python_source(mod: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = FUNCTION.replace("\n", "\n    ")
    source = f"from mlc_compiler import I, T\n\n{FUNCTION}\n@I.ir_module\nclass Module:\n    {body}"
    source += f"\n@T.macro\ndef store(A, B, vi):\n    B[vi] = {SUM}\n"
    path = tmp_path / "deep_source.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("deep_source", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "deep_source", module)
    spec.loader.exec_module(module)
    assert structural_equal(module.Module, mod) and structural_equal(module.f, mod["f"])
    a, b = mod["f"].buffers
    assert to_script(expand(module.store, a, b, 0)).count("A[0, ") == TERMS


def test_meaning_and_checks(mod: Any) -> None:
    verify(mod)
    assert np.array_equal(interpreted(mod["f"]), RESULT)


def test_schedule(mod: Any) -> None:
    sch = Schedule(mod)
    outer, _ = sch.split(sch.get_loops("B")[0], [2, 2])
    sch.parallel(outer)
    assert np.array_equal(interpreted(sch.func), RESULT)


def test_compiled(mod: Any) -> None:
    out = np.zeros(4, np.float32)
    build(mod)["f"](ONES, out)
    assert np.array_equal(out, RESULT)
    assert emit_llvm(mod).count("@llvm.fma") >= TERMS - 1


def test_tensor_expressions() -> None:
    a = te.placeholder((4, 8), name="A")
    i = te.var("i")
    total = a[i, 0] * 0.0
    for n in range(1, TERMS):
        total = total + a[i, n % 8] * float(n)
    assert total.dtype == "float32"

    def element(row: Any) -> Any:
        return sum((a[row, n % 8] * float(n) for n in range(1, TERMS)), start=a[row, 0] * 0.0)

    assert np.array_equal(interpreted(te.create_prim_func([a, te.compute((4,), element, name="B")])), RESULT)


def test_graphs() -> None:
    x, bb = tensor_var("x", (4,)), BlockBuilder()
    nested = ops.exp(x)
    for _ in range(TERMS):
        nested = ops.add(nested, x)
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(nested))
    half = np.full(4, 0.5, np.float32)
    bound = run_passes(bind_params(bb.get(), "main", {"x": half}), entries())
    np.testing.assert_allclose(run_function(bound, "main"), np.exp(half) + TERMS * half, rtol=1e-6)


@pytest.mark.parametrize(
    ("refused", "error", "message"),
    [
        (lambda: parse(FUNCTION.replace(SUM, " + ".join(["A[vi, 0]"] * 5000))), ScriptError, "nests? too deeply"),
        (lambda: build(parse(FUNCTION.replace(SUM, " + ".join(["A[vi, 0]"] * 1100)))), VerifyError, "nest too deeply"),
    ],
)
def test_deeper_ones_are_refused(refused: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        refused()
