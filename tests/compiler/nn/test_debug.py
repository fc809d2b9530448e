"""Debug prints and functions: called in order, once, and only in modules exported with ``debug=True``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mlc_compiler import nn, parse, register_func, structural_equal, to_script
from mlc_compiler.api import build
from mlc_compiler.interp import run_function
from mlc_compiler.nn import op, spec
from mlc_compiler.nn.debug import DEBUG_PRINT, DebugError
from mlc_compiler.passes.plan_memory import PlanError
from mlc_compiler.pipeline import entries, pipeline, run_passes
from mlc_compiler.relax.ops import OperatorError
from mlc_compiler.target import Target
from mlc_compiler.verifier import verify
from mlc_runtime import debug
from mlc_runtime.arrays import tvm_ffi
from mlc_runtime.dtypes import dtype_of

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


class Shown(nn.Module):
    """Prints intermediate values that fusion would remove, a weight, and an otherwise unused value."""

    def __init__(self) -> None:
        self.scale = nn.Parameter((3,), "bfloat16")

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        y = op.relu(x)
        op.print_(y)
        op.print_(x + 1, "next")
        op.print_(self.scale)
        z = op.softmax(y * 2)
        op.print_(z)
        return op.print_(y) or z


FUNCTIONS = {"forward": {"x": spec.Tensor(("n", 3))}}
SCALE = np.array([1, 2, 3], dtype_of("bfloat16"))


def shown(output: str) -> list[tuple[str, str]]:
    """Name, dtype and shape of the printed tensor, and its elements."""
    parts = re.split(rf"{re.escape(__file__)}:\d+: (.*)\n", output)[1:]
    return [(head, " ".join(body.split())) for head, body in zip(parts[::2], parts[1::2], strict=True)]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_prints_come_in_order_and_once(threads: int, capfd: pytest.CaptureFixture[str]):
    model = Shown().jit(FUNCTIONS, debug=True, num_threads=threads, params={"scale": SCALE})
    for _ in range(2):
        result = model.forward(X)
        softmax = "[[0.33333334 0.33333334 0.33333334] [0.01587624 0.11731043 0.86681336]]"
        assert shown(capfd.readouterr().out) == [
            ("relu float32 [2, 3]", "[[0. 0. 0.] [1. 2. 3.]]"),
            ("next float32 [2, 3]", "[[-1. 0. 1.] [ 2. 3. 4.]]"),
            ("scale bfloat16 [3]", "[1 2 3]"),
            ("softmax float32 [2, 3]", softmax),
            ("relu float32 [2, 3]", "[[0. 0. 0.] [1. 2. 3.]]"),
        ]
    assert result.shape == (2, 3)


def test_prints_are_effects_in_every_stage():
    mod, _ = Shown().export(FUNCTIONS, debug=True)
    assert not mod["forward"].is_pure and DEBUG_PRINT == debug.DEBUG_PRINT
    assert re.search(r'R.call_packed\("mlc.debug_print", R.str\(".*:\d+"\), R.str\("relu"\), relu, ', to_script(mod))

    def check(stage: Any) -> None:
        verify(stage)
        assert structural_equal(parse(to_script(stage)), stage)
        assert to_script(stage).count("mlc.debug_print") == 5

    run_passes(mod, (*entries(), *pipeline(Target("cpu:x86-64-v3"))), check=check)


def test_the_interpreter_prints_too():
    mod, _ = Shown().export(FUNCTIONS, debug=True)
    seen = []
    run_function(mod, "forward", X, (SCALE,), externs={DEBUG_PRINT: lambda *args: seen.append(args[1:])})
    assert [name for name, _ in seen] == ["relu", "next", "scale", "softmax", "relu"]
    assert np.array_equal(seen[1][1], X + 1)


def test_without_the_flag_it_is_an_error():
    for run in (Shown().export, Shown().jit):
        with pytest.raises(DebugError, match="op.print_ in a module that is not exported for debugging") as error:
            run(FUNCTIONS)
        assert error.value.where[0].startswith(__file__) and "debug=True" in str(error.value.hint)


@pytest.fixture
def calls() -> Iterator[list[tuple[Any, ...]]]:
    """The arguments of all calls of the registered function ``test.debug``."""
    seen: list[tuple[Any, ...]] = []

    @register_func("test.debug", override=True)
    def keep(*args: Any) -> None:
        seen.append(tuple(np.from_dlpack(a).tolist() if isinstance(a, tvm_ffi.Tensor) else a for a in args))

    yield seen
    tvm_ffi.remove_global_func("test.debug")


class Called(nn.Module):
    def forward(self, x: nn.Tensor) -> nn.Tensor:
        op.debug_func("test.debug", x, x.shape[0], 2.5, -1, "ünter", op.sum(x))
        return x * 2

    def wrong(self, x: nn.Tensor) -> None:
        op.debug_func("test.debug", [x])


@pytest.mark.parametrize("threads", [1, 2])
def test_registered_debug_functions(threads: int, calls: list[tuple[Any, ...]]):
    model = Called().jit({"forward": {"x": spec.Tensor(("n",))}}, debug=True, num_threads=threads)
    x = np.array([1, 2, 4], np.float32)
    assert model.forward(x).tolist() == [2, 4, 8]
    ((where, *rest),) = calls
    assert where.startswith(f"{__file__}:") and rest == [[1, 2, 4], 3, 2.5, -1, "ünter", 7]

    @register_func("test.debug", override=True)
    def fails(*_: Any) -> None:
        raise ValueError("that is not a number")

    with pytest.raises(ValueError, match="that is not a number"):
        model.forward(x)


def test_arguments_of_debug_functions():
    with pytest.raises(
        OperatorError, match="op.debug_func: got an argument of type list; expected a tensor, number or"
    ):
        Called().export({"wrong": {"x": spec.Tensor((3,))}}, debug=True)


CALL = """
@I.ir_module
class Module:
    @R.function(pure=False)
    def main(x: R.Tensor((3,), "float32")):
        y = R.add(x, x)
        _ = R.call_packed("test.debug", {}, sinfo_args=({},))
        return y
"""


def test_calls_written_as_script(calls: list[tuple[Any, ...]]):
    y = build(parse(CALL.format('y, R.prim_value(7), R.str("text")', "R.Tuple()")))["main"](np.float32(SCALE))
    assert y.tolist() == [2, 4, 6] and calls == [([2, 4, 6], 7, "text")]
    with pytest.raises(PlanError, match="'test.debug' gives an object; only tensors have a place"):
        build(parse(CALL.format("y", "R.Object")))
