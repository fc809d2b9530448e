"""The verifier in ``build``: its errors are reported as compiler faults, and its time as a phase."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlc_compiler.driver import build_library, native_text
from mlc_compiler.passes.base import Pass
from mlc_compiler.passes.lower_blocks import LowerBlocks
from mlc_compiler.script import parse
from mlc_compiler.target import Target
from mlc_compiler.tir.nodes import PrimFunc
from mlc_errors import InternalError

TARGET = Target("cpu")
MODULE = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def shift(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        T.func_attr({"num_outputs": 1})
        for i in range(8):
            with T.block("y"):
                vi = T.axis.spatial(8, i)
                y[vi] = x[vi]

    @R.function
    def main(x: R.Tensor((8,), "float32")):
        y = R.call_tir(Module.shift, (x,), out_sinfo=R.Tensor((8,), "float32"))
        return y
"""


def test_its_time_is_a_phase(tmp_path: Path) -> None:
    built = build_library(parse(MODULE), TARGET, tmp_path / "lib.so")
    assert next(iter(built.seconds)) == "verify" and built.seconds["verify"] > 0


@pytest.mark.parametrize("in_the_background", [False, True])
def test_a_malformed_module_of_the_front_end(
    in_the_background: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_the_background:
        monkeypatch.setattr("mlc_compiler.pipeline.NODES_WORTH_A_PROCESS", 1)
        monkeypatch.setattr("mlc_compiler.driver.available_cores", lambda: 2)
    mod = parse(MODULE.replace("x[vi]", "x[vi + 1]"))
    with pytest.raises(InternalError) as caught:
        build_library(mod, TARGET, tmp_path / "lib.so")
    assert caught.value.message.startswith("internal compiler error: axis 0 of 'x' ends before its size")
    wanted = ("function shift", "block y", "y[vi] = x[vi + 1]", "the module after the front end")
    assert caught.value.where == wanted
    assert "report" in str(caught.value.hint)
    assert not (tmp_path / "lib.so").exists()


def test_a_pass_that_leaves_a_malformed_module(monkeypatch: pytest.MonkeyPatch) -> None:
    lower = LowerBlocks.function

    def broken(self: Pass, func: PrimFunc, name: str) -> PrimFunc:
        """A pass that lowers a function to a loop that is too long."""
        wrong = parse(MODULE.replace("range(8)", "range(9)").replace("spatial(8", "spatial(9"))
        return lower(LowerBlocks(), wrong["shift"] if name == "shift" else func, name)

    monkeypatch.setattr(LowerBlocks, "function", broken)
    with pytest.raises(InternalError, match="axis 0 of 'y' ends before its size; got an index of 8") as caught:
        native_text(parse(MODULE), TARGET, "llvm")
    assert caught.value.where[0] == "function shift" and caught.value.where[-1] == "the module after the passes"
