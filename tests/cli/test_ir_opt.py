"""`ir_opt` runs passes over a module given as text."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from mlc_cli.__main__ import main
from mlc_compiler.interp import run_function
from mlc_compiler.pipeline import entries, pipeline, run_passes
from mlc_compiler.relax import ops
from mlc_compiler.relax.builder import BlockBuilder, tensor_var
from mlc_compiler.relax.nodes import constant
from mlc_compiler.script import parse, script
from mlc_compiler.script.files import read_constants
from mlc_compiler.target import Target
from mlc_toolchain.ir_opt import known_passes

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
        ("eliminate-daed", "error: no pass 'eliminate-daed'; expected one of inline-calls,"),
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


def printed(capsys: pytest.CaptureFixture[str], file: Path, *arguments: str) -> str:
    assert main(["ir_opt", str(file), *arguments]) == 0
    return capsys.readouterr().out


def test_a_list_of_passes_is_the_passes_one_by_one(module_file: Path, capsys: pytest.CaptureFixture[str]):
    once = printed(capsys, module_file, "-p", "fold-constants:max_elements=8,eliminate-dead, legalize,lower-blocks")
    options = ["fold-constants:max_elements=8", "eliminate-dead", "legalize", "lower-blocks"]
    assert once == printed(capsys, module_file, *(word for name in options for word in ("-p", name)))
    assert "unused" not in once and "T.block" not in once


def test_the_whole_compilation_can_be_given_by_name(module_file: Path, capsys: pytest.CaptureFixture[str]):
    target = Target("cpu:x86-64-v3")
    names = ",".join(step.name for step in (*entries(), *pipeline(target)))
    assert "quantized-matmuls" in names
    text = printed(capsys, module_file, "-p", names, "--device", "cpu:x86-64-v3")
    expected = run_passes(parse(MODULE), (*entries(), *pipeline(target)))
    assert text == script(expected) + "\n"


def test_a_file_may_hold_a_single_function_indented(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    function = MODULE.split("class Module:\n")[1].split("    @R.function")[0]
    (tmp_path / "kernel.py").write_text(function)
    assert printed(capsys, tmp_path / "kernel.py").startswith(
        "# from mlc_compiler.script import I, R, T\n\n@T.prim_func"
    )
    lowered = printed(capsys, tmp_path / "kernel.py", "-p", "annotate-patterns,lower-blocks")
    assert "@I.ir_module" in lowered and '"op_pattern"' in lowered and "T.block" not in lowered


def test_help_names_the_passes(capsys: pytest.CaptureFixture[str]):
    assert main(["ir_opt", "--help"]) == 0
    listed = capsys.readouterr().out.split("(--list describes each):")[1]
    assert listed.split() == list(known_passes(Target()))


def test_similar_names_are_suggested(module_file: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["ir_opt", str(module_file), "-p", "legalize,eliminate_daed"]) == 2
    assert "did you mean eliminate-dead?" in capsys.readouterr().err


def test_constants_of_a_dumped_module_are_read_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rng = np.random.default_rng(2)
    weight = constant(rng.random((8, 5), np.float32)), constant(rng.random((8, 5)).astype(ml_dtypes.bfloat16))
    bb, x = BlockBuilder(), tensor_var("x", (3, 8), "float32")
    with bb.function("main", [x]), bb.dataflow():
        sums = bb.emit(ops.add(weight[0], ops.astype(weight[1], dtype="float32")))
        bb.emit_func_output(bb.emit_output(bb.emit(ops.matmul(x, sums))))
    dump, target = tmp_path / "dump", Target("cpu:x86-64-v3")
    run_passes(bb.get(), (*entries(), *pipeline(target)), dump=dump)
    files = sorted(dump.glob("*.py"))
    assert len(files) > 20
    for file in files:
        assert printed(capsys, file) == file.read_text() + "\n"
    out = tmp_path / "out.py"
    assert main(["ir_opt", str(files[0]), "-p", "legalize", "-o", str(out)]) == 0
    result = run_function(parse(out.read_text(), read_constants(out)), "main", np.ones((3, 8), np.float32))
    expected = np.ones((3, 8)) @ sum(w.data.astype(np.float64) for w in weight)
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    out.with_suffix(".npz").write_bytes(b"PK")
    assert main(["ir_opt", str(out)]) == 1
    assert "error: the constants of out.py cannot be read" in capsys.readouterr().err
    out.with_suffix(".npz").unlink()
    assert main(["ir_opt", str(out)]) == 1
    assert "in NAME.npz beside it" in capsys.readouterr().err
