"""`ir_opt`: text in, passes, text out."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlc_cli.__main__ import main

MODULE = """\
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tir as T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def double(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("double"):
                v = T.axis.spatial(4, i)
                b[v] = a[v] * T.float32(2)

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Module
        with R.dataflow():
            unused = R.call_tir(cls.double, (x,), out_sinfo=R.Tensor((4,), "float32"))
            gv = R.call_tir(cls.double, (x,), out_sinfo=R.Tensor((4,), "float32"))
            R.output(gv)
        return gv
"""


@pytest.fixture
def module_file(tmp_path: Path) -> Path:
    path = tmp_path / "module.py"
    path.write_text(MODULE)
    return path


def test_without_passes_the_printed_module_prints_the_same_again(module_file: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["ir_opt", str(module_file)]) == 0
    once = capsys.readouterr().out
    module_file.write_text(once)
    assert main(["ir_opt", str(module_file)]) == 0
    assert capsys.readouterr().out == once
    assert "unused" in once


def test_passes_run_and_the_output_file_is_written(module_file: Path, tmp_path: Path):
    out = tmp_path / "out.py"
    assert main(["ir_opt", str(module_file), "-p", "eliminate-dead", "-o", str(out)]) == 0
    assert "unused" not in out.read_text()
    assert out.read_text().count("R.call_tir(") == 1


def test_options_and_the_target_reach_the_passes(module_file: Path, capsys: pytest.CaptureFixture[str]):
    arguments = ["-p", "fold-constants:max_elements=8", "-p", "apply-schedules", "--device", "cpu:znver4"]
    assert main(["ir_opt", str(module_file), *arguments]) == 0
    assert '"tir.is_scheduled": True' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ("eliminate-daed", "error: no pass 'eliminate-daed'; expected one of annotate-patterns,"),
        ("eliminate-dead:limit=3", "error: pass eliminate-dead has no option 'limit'; it has none"),
        ("fold-constants:max_elements=x", "error: pass fold-constants: 'max_elements=x' is not option=value with"),
    ],
)
def test_wrong_passes_are_usage_errors(spec: str, error: str, module_file: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["ir_opt", str(module_file), "-p", spec]) == 2
    assert capsys.readouterr().err.startswith(error)


def test_text_that_is_no_module_points_at_the_place(module_file: Path, capsys: pytest.CaptureFixture[str]):
    module_file.write_text(MODULE.replace("range(4)", "ragne(4)"))
    assert main(["ir_opt", str(module_file)]) == 1
    error = capsys.readouterr().err
    assert f"{module_file}, line 10" in error and "^^^" in error


def test_list_names_every_pass_with_a_line(capsys: pytest.CaptureFixture[str]):
    assert main(["ir_opt", "--list"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["pass", "does"]
    assert {"legalize", "fuse-ops", "eliminate-dead", "plan-memory"} <= {row.split()[0] for row in rows}
