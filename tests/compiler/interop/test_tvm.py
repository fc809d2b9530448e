"""Interoperation with Apache TVM: its text parses, round-trips and compiles, with the same results as TVM."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler import build, parse
from mlc_compiler.verifier import verify
from tests.compiler.interop.tvm_cases import CASES
from tests.compiler.script.round_trip import check_round_trip

# TVM sums in another order, and keeps float16 sums in float16.
TOLERANCE = {"float32": 2e-5, "float64": 1e-12, "float16": 2e-3}


def test_there_are_enough():
    assert len(CASES) >= 100


@pytest.mark.parametrize("name", CASES)
def test_module(name: str):
    case = CASES[name]()
    mod = parse(case.text)
    check_round_trip(mod)
    verify(mod)
    expected = case.expected()
    args = [a.copy() for a in case.args]
    result = build(mod)["main"](*args)
    results = args[-case.num_results :] if case.num_results else result if isinstance(result, tuple) else [result]
    for got, wanted in zip(results, expected, strict=True):
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        rtol = TOLERANCE.get(str(wanted.dtype), 0)
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol / 20)
