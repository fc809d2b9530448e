"""Reports of failures: the text of a reduced module, which parses and fails in the same way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlc_compiler.codegen import functions
from mlc_compiler.ir.module import IRModule
from mlc_compiler.passes.copy_results import CopyResults
from mlc_compiler.relax.nodes import Function
from mlc_compiler.script import parse
from tests.compiler.fuzz import elementwise, moves
from tests.compiler.fuzz.differential import Failure, Trial, failure, run_trial
from tests.compiler.fuzz.recipes import Recipe, Step
from tests.compiler.fuzz.values import ACTIONS, Act


def step(act: Act, a: int = 0, b: int = 0, extra: int = 0) -> Step:
    return Step([action.act for action in ACTIONS].index(act), a, b, extra)


MATRIX, ROWS = (0, (2, 4), False), (0, (7, 3), True)
CEIL = 1
OTHER = Recipe((ROWS,), (step(moves.transpose),), 1)
WRONG = Recipe(
    (MATRIX, ROWS),
    (step(moves.transpose), step(elementwise.rounded, extra=CEIL), step(elementwise.unary, extra=1)),
    1,
)
TRIAL = Trial((OTHER, WRONG), (2,))


def test_a_wrong_kernel_is_shown_as_a_small_module(monkeypatch: pytest.MonkeyPatch) -> None:
    run_trial(TRIAL)
    monkeypatch.setitem(functions._ROUNDING, "ceil", "floor")
    with pytest.raises(Failure, match="result 0: .* at .*, not .* differ") as caught:
        run_trial(TRIAL)
    shown = caught.value
    mod = parse(shown.text, shown.constants)
    (func,) = mod.of_type(Function).values()
    assert len(func.bindings) <= 3 and "R.ceil(" in shown.text and shown.text in str(shown)
    assert failure(mod, shown.trial, {"f0": [0.0]}) == shown.what
    monkeypatch.undo()
    assert failure(mod, shown.trial, {"f0": [0.0]}) is None


def test_a_pass_that_breaks_the_module_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_bindings(self: CopyResults, mod: IRModule) -> IRModule:
        return mod.updated({name: replace(f, blocks=()) for name, f in mod.of_type(Function).items()})

    monkeypatch.setattr(CopyResults, "run", without_bindings)
    with pytest.raises(Failure, match=r"(?s)is used before .* after the pass copy-results"):
        run_trial(Trial((OTHER,), (2,)))
