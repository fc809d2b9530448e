"""Malformed and unusual texts: each raises ScriptError or VerifyError, and no other exception."""

from __future__ import annotations

import sys
import threading
import warnings

import pytest

from mlc_compiler.script import ScriptError, parse
from mlc_compiler.verifier import VerifyError, verify

TENSOR = '@T.prim_func\ndef main(A: T.Buffer((6,), "float32"), B: T.Buffer((6,), "float32")):\n'
GRAPH = '@R.function\ndef main(x: R.Tensor((2, 3), "float32")):\n'

ODD = {
    "no-condition": (TENSOR, '    with T.block("b"):\n        T.where()\n        B[0] = A[0]', "got 0 arguments"),
    "nothing-to-evaluate": (TENSOR, "    T.evaluate()", "got 0 arguments"),
    "unpacked-number": (TENSOR, "    B[0] = T.max(*3, A[0])", "only lists and tuples can be unpacked"),
    "unpacked-buffer": (TENSOR, "    B[0] = T.max(*A)", "only lists and tuples can be unpacked"),
    "unpacked-in-a-list": (TENSOR, "    for i in T.grid(*[*2]):\n        B[i] = A[i]", "only lists and tuples"),
    "no-name": (TENSOR, '    B[0] = T.call_intrin("float32", A[0], A[0])', "the name of a function"),
    "long-sum": (TENSOR, "    B[0] = " + " + ".join(["A[0]"] * 5000), "nests? too deeply"),
    "many-signs": (TENSOR, "    B[0] = " + "-" * 4000 + "A[0]", "nests? too deeply"),
    "many-parentheses": (TENSOR, "    B[0] = " + "(" * 5000 + "A[0]" + ")" * 5000, "too many nested parentheses"),
    "large-number": (GRAPH, "    y = R.negative(9999999999999999999999)\n    return y", "too large"),
    "tuple-in-a-tuple": (GRAPH, "    y = R.concat((x, (x, x)))\n    return y", "got a tuple"),
}


@pytest.mark.parametrize("name", ODD)
def test_errors_have_a_location(name: str) -> None:
    head, body, message = ODD[name]
    with pytest.raises(ScriptError, match=message) as error:
        parse(f"{head}{body}\n")
    assert "line" in error.value.where[0] and "^" in error.value.where[2]


def test_a_long_chain_of_definitions_is_an_error() -> None:
    lines = [f"    x{i}: T.float32 = {f'x{i - 1}' if i else 'A[0]'}" for i in range(3000)]
    with pytest.raises((ScriptError, VerifyError), match="nests? too deeply"):
        verify(parse("\n".join([TENSOR.rstrip(), *lines, "    B[0] = x2999"])))


def test_python_does_not_warn_about_the_text() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ScriptError):
            parse(f"{TENSOR}    B[0] = 1or nothing\n")


def test_parsing_in_threads_restores_the_warning_filters() -> None:
    filters = list(warnings.filters)
    text = f"{TENSOR}    B[0] = A[0]\n"
    threads = [threading.Thread(target=lambda: [parse(text) for _ in range(20)]) for _ in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert warnings.filters == filters
