"""Modules printed by Apache TVM: they parse, round-trip, verify, and interpreting them gives TVM's results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlc_compiler.interp import run_function
from mlc_compiler.script import parse
from mlc_compiler.verifier import verify
from tests.compiler.script.round_trip import check_round_trip

CASES = json.loads((Path(__file__).parents[2] / "data/apache_tvm/modules.json").read_text())
# TVM sums in another order, and keeps float16 sums in float16.
TOLERANCE = {"float32": 2e-5, "float16": 1e-3}


def array(stored: dict[str, Any]) -> np.ndarray:
    return np.array(stored["values"], stored["dtype"]).reshape(stored["shape"])


@pytest.mark.parametrize("name", CASES)
def test_module(name: str) -> None:
    case = CASES[name]
    expected = [array(r) for r in case["results"]]
    for stage, text in case["texts"].items():
        mod = parse(text, name=f"{name}/{stage}")
        check_round_trip(mod)
        verify(mod)
        args = [array(a) for a in case["args"]]
        results = [np.zeros_like(expected[0])] if name == "schedule" else []
        returned = run_function(mod, "main", *args, *results)
        results = results or (list(returned) if isinstance(returned, tuple) else [returned])
        for result, wanted in zip(results, expected, strict=True):
            assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape), stage
            rtol = TOLERANCE.get(str(wanted.dtype), 0)
            np.testing.assert_allclose(result, wanted, rtol=rtol, atol=rtol / 20, err_msg=stage)
