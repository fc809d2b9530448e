"""Commands for GPUs on a machine without one, and the files that ``compile`` writes for GPUs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mlc_cli.__main__ import main
from mlc_compiler.backends.cuda import images
from mlc_runtime.library import Library

NO_GPU = "target cuda: no GPU found: "


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a CUDA driver."""
    from mlc_compiler.backends.cuda import machine

    def detected(ordinal: int) -> None:
        raise machine._no_gpu("there is no driver")

    monkeypatch.setattr(machine, "_detected", detected)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with its weights, and ``cuda.so`` for three architectures."""
    folder = tmp_path_factory.mktemp("model")
    source = Path(__file__).parents[1] / "data" / "reference" / "source"
    sizes = ("--context-window-size", "64", "--prefill-chunk-size", "8")
    run("convert_weight", source, "--quantization", "q4f16_1", "-o", folder)
    run("gen_config", source, "--quantization", "q4f16_1", *sizes, "-o", folder)
    run("compile", folder, "--device", "cuda:sm_80,sm_90", "-o", folder / "cuda.so")
    return folder


def run(*words: object) -> None:
    assert main([str(word) for word in words]) == 0


def compile_error(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, list[str]]:
    """The exit code of ``compile`` and its error message."""
    status = main(["compile", *map(str, words)])
    return status, capsys.readouterr().err.splitlines()


def test_a_library_for_several_architectures_says_which(folder: Path) -> None:
    metadata = Library(folder / "cuda.so").metadata
    assert metadata["images"] == {"ptx": "sm_80", "machine_code": ["sm_80", "sm_90"]}
    assert metadata["target"]["arch"] == ["sm_80", "sm_90"]
    assert metadata["host"]["kind"] == "cpu"


def test_ptx_as_text_and_a_library_without_machine_code(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(images, "find_assembler", lambda: None)
    library = tmp_path / "model.so"
    run("compile", folder, "--device", "cuda:sm_90a", "--emit", "ptx", "-o", library, "--json")
    text = (tmp_path / "model.sm_90a.ptx").read_text()
    assert ".target sm_90a" in text and ".entry" in text
    why = "none of ptxas and the packages nvidia-cuda-nvcc and nvidia-nvjitlink is installed"
    expected = {"ptx": "sm_90a", "machine_code": [], "without_machine_code": why}
    assert Library(library).metadata["images"] == expected
    assert json.loads(capsys.readouterr().out)["images"] == expected


@pytest.mark.parametrize("command", [["generate", "--prompt", "a", "--max-tokens", "1"], ["chat"]], ids=lambda c: c[0])
def test_running_a_library_for_gpus_without_a_driver(
    folder: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has an NVIDIA driver")
    library = folder / "cuda.so"
    assert main([*command, str(folder), "--model-lib", str(library)]) == 4
    assert capsys.readouterr().err.splitlines() == [
        "error: context_create: this machine has no NVIDIA driver (libcuda.so.1): install it, "
        "or start the container with access to GPUs",
        f"  in   {library}",
        "  hint to run on the CPU, compile with --device cpu",
        "  more mlc_cli explain MLC4",
    ]


DEBUGGING = {
    "debug_chat": ["--prompt", "a", "--debug-dir", "kernels"],
    "debug_compare": ["--prompt", "a", "--reference", "{library}"],
}


@pytest.mark.parametrize("command", DEBUGGING)
def test_kernels_of_a_library_for_gpus_are_not_observed(
    folder: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    library = folder / "cuda.so"
    options = [word.format(library=library) for word in DEBUGGING[command]]
    assert main([command, str(folder), "--model-lib", str(library), *options]) == 3
    assert capsys.readouterr().err.splitlines() == [
        "error: the library is for cuda:sm_80,sm_90; kernels are observed on CPUs only",
        f"  in   {library}",
        f"  hint mlc_cli compile {folder} --device cpu -o CPU.so, then --model-lib CPU.so; "
        f"or run its kernels in a simulator: mlc_cli check_kernels {folder} --device cuda:sm_80",
        "  more mlc_cli explain MLC3",
    ]
    assert main([command, str(folder), "--device", "cuda:sm_90a", *options]) == 3
    assert capsys.readouterr().err.splitlines() == [
        "error: --device cuda:sm_90a: kernels are observed on CPUs only",
        f"  hint leave it out, or run the kernels in a simulator: mlc_cli check_kernels {folder} --device cuda:sm_90a",
        "  more mlc_cli explain MLC3",
    ]


def test_the_gpu_of_a_machine_without_one(folder: Path, without_gpu: None, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = compile_error(capsys, folder, "--device", "cuda", "-o", folder / "none.so")
    assert (status, said[0]) == (3, f"error: {NO_GPU}there is no driver")
    assert re.match("  hint name the architecture to compile for, as cuda:sm_90a; known: sm_80, sm_86, ", said[1])
    assert not (folder / "none.so").exists()


def test_auto_says_that_it_takes_the_cpu(
    folder: Path, without_gpu: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("compile", folder, "--device", "auto", "-o", tmp_path / "lib.so", "--json")
    report = json.loads(capsys.readouterr().out)
    assert report["note"] == "no GPU found: there is no driver; using the CPU"
    assert (report["target"]["kind"], report["images"]) == ("cpu", {})


@pytest.mark.parametrize(
    ("flags", "status", "said"),
    [
        (
            ["--device", "cuda:sm_90a,sm_120"],
            3,
            ["error: target cuda: code for sm_90a does not run on sm_120", "  hint name sm_90 instead, or compile"],
        ),
        (["--device", "cuda:sm_75"], 3, ["error: target cuda: arch is 'sm_75'", "  hint known: sm_80, sm_86, "]),
        (
            ["--device", "cpu", "--emit", "ptx"],
            2,
            ["error: --emit ptx: the target cpu has no PTX", "  hint use --device cuda or cuda:sm_90a"],
        ),
    ],
)
def test_combinations_that_are_refused(
    folder: Path, flags: list[str], status: int, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found, lines = compile_error(capsys, folder, *flags, "-o", folder / "none.so")
    assert found == status
    assert [line.startswith(start) for line, start in zip(lines[:2], said, strict=True)] == [True, True]
