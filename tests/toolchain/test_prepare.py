"""Models that are prepared when they are run: what is built, cached, reused, and rejected."""

from __future__ import annotations

import json
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mlc_errors import MLCError, ResourceError, UsageError
from mlc_runtime import LLM, kept_weights, weights
from mlc_runtime.model_spec import ParamSpec
from mlc_toolchain import model_cache, preparation
from mlc_toolchain.chat_config import read_chat_config
from mlc_toolchain.prepare import prepared_model, preview
from mlc_toolchain.prepare_plan import PrepareOptions, plan_preparation
from mlc_toolchain.verify import verify_folder
from tests.e2e.building import run_command

SOURCE = Path(__file__).parents[1] / "data" / "reference" / "source"
CPU = PrepareOptions(device="cpu")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A cache, and a checkpoint that was prepared in it."""
    base = tmp_path_factory.mktemp("prepared")
    source = shutil.copytree(SOURCE, base / "model")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLC_CACHE_DIR", str(base / "cache"))
        prepared_model(str(source), CPU)
    return base / "cache", source


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("MLC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def filled(made: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The checkpoint in the cache that ``made`` has filled."""
    monkeypatch.setenv("MLC_CACHE_DIR", str(made[0]))
    return made[1]


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test if any work is done."""
    monkeypatch.setattr(preparation, "prepare", lambda *_: pytest.fail("there is nothing to do"))


def mapped_only(spec: ParamSpec, source: np.ndarray, *_: object) -> np.ndarray:
    """A parameter that is read as it is stored; any that would be packed fails the test."""
    assert spec.packed is None
    return source


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a model folder but for libraries, what is kept for them, and the manifest."""
    made = {path for path in folder.iterdir() if path.suffix in (".so", kept_weights.SUFFIX)}
    return {p.name: p.read_bytes() for p in folder.iterdir() if p not in made and p.name != model_cache.MANIFEST}


def test_packed_weights_are_kept_with_the_library(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are mapped where the system has huge pages for them, as this test pretends, and go with the entry."""
    monkeypatch.setenv("MLC_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kept_weights, "huge_bytes", lambda address: 1 << 40)
    options = replace(CPU, quantization="q4f16_1")
    announced = preview(str(filled), options).packed_bytes
    found = prepared_model(str(filled), options)
    kept = found.library.with_suffix(kept_weights.SUFFIX)
    assert [c.problem for c in verify_folder(found.folder).checks if c.file == kept.name] == [""]
    with monkeypatch.context() as patch:
        patch.setattr(weights, "packed_array", mapped_only)
        with LLM(found.folder, found.library) as llm:
            mapped = llm.logits([1, 2])
    (entry,) = model_cache.entries()
    assert entry.nbytes >= kept.stat().st_size
    assert announced is not None and announced - (1 << 18) < kept.stat().st_size <= announced
    kept.unlink()
    with LLM(found.folder, found.library) as llm:
        np.testing.assert_array_equal(llm.logits([1, 2]), mapped)


def test_the_files_are_those_of_the_single_commands(filled: Path, tmp_path: Path):
    found = prepared_model(str(filled), CPU)
    out = tmp_path / "out"
    run_command("gen_config", filled, "--quantization", "q4f16_nl", "-o", out)
    run_command("convert_weight", filled, "--quantization", "q4f16_nl", "--calibration", "auto", "-o", out)
    assert contents(found.folder) == contents(out)
    with LLM(found.folder, found.library, device=found.device) as llm:
        assert llm.logits([1, 2]).shape == (2, 1000)


def test_a_second_start_finds_what_there_is(filled: Path, idle: None):
    found = prepared_model(str(filled / "config.json"), CPU)
    assert found == prepared_model(str(filled), CPU)
    os.utime(found.folder / model_cache.MANIFEST, (0, 0))
    prepared_model(str(filled), CPU)
    (entry,) = model_cache.entries()
    assert entry.used > 0 and not entry.is_stale and entry.manifest.quantization == "q4f16_nl"


@pytest.mark.parametrize(
    ("change", "weights_too"),
    [
        ({"quantization": "q0f32"}, True),
        ({"conv_template": "LM"}, True),
        ({"opt": "act=16"}, False),
        ({"overrides": "context_window_size=16"}, False),
        ({"device": "cpu:znver4"}, False),
    ],
)
def test_what_an_option_makes_anew(filled: Path, change: dict[str, str], weights_too: bool):
    before, after = (plan_preparation(str(filled), options) for options in (CPU, replace(CPU, **change)))
    assert before.is_ready and not after.is_ready
    assert after.has_weights is not weights_too


def test_a_changed_checkpoint_is_another(filled: Path, tmp_path: Path):
    copy = shutil.copytree(filled, tmp_path / "model")
    first = plan_preparation(str(copy), CPU)
    os.utime(copy / "model.safetensors", ns=(1, 1))
    assert first.name != plan_preparation(str(copy), CPU).name


def test_another_version_of_the_tool_prepares_again(filled: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(model_cache, "tool_stamp", lambda: "1")
    assert not plan_preparation(str(filled), CPU).has_weights
    assert [entry.is_stale for entry in model_cache.entries()] == [True]


def test_an_interrupted_conversion_is_continued(cache: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(preparation, "convert_weight", interrupted)
        prepared_model(str(SOURCE), CPU)
    (left,) = model_cache.entries()
    assert left.path.name.endswith(".partial") and left.is_stale and not plan_preparation(str(SOURCE), CPU).has_weights
    monkeypatch.setattr(preparation, "compile_model", lambda options, _: options.output.touch())
    assert prepared_model(str(SOURCE), CPU).folder == left.path.with_name(left.path.name.removesuffix(".partial"))


def test_two_processes_prepare_once(cache: Path, monkeypatch: pytest.MonkeyPatch):
    name = plan_preparation(str(SOURCE), CPU).name
    waits, released = threading.Event(), threading.Event()
    monkeypatch.setattr(preparation, "compile_model", lambda options, _: options.output.touch())

    def second() -> None:
        with model_cache.locked(name, waits.set):
            released.set()

    with model_cache.locked(name, pytest.fail):
        thread = threading.Thread(target=second)
        thread.start()
        assert waits.wait(10) and not released.is_set()
    thread.join(10)
    assert released.is_set()


def test_a_model_folder_is_compiled_in_its_place(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(preparation, "compile_model", lambda options, _: options.output.touch())
    folder = tmp_path / "folder"
    shutil.copytree(prepared_model(str(filled), CPU).folder, folder, ignore=shutil.ignore_patterns("lib*"))
    assert prepared_model(str(folder), CPU).library == folder / "lib.so"
    assert prepared_model(str(folder), replace(CPU, device="cuda:1")).device == "cuda:1"
    with pytest.raises(UsageError, match=r"^--quantization q4f16_1: .*/folder is converted already"):
        prepared_model(str(folder), PrepareOptions(quantization="q4f16_1"))


def test_a_model_folder_that_cannot_be_written(
    filled: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "folder"
    with monkeypatch.context() as patch:
        patch.setenv("MLC_CACHE_DIR", str(filled.parent / "cache"))
        shutil.copytree(prepared_model(str(filled), CPU).folder, folder, ignore=shutil.ignore_patterns("lib*"))
    monkeypatch.setattr(preparation, "compile_model", lambda options, _: options.output.touch())
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        library = prepared_model(str(folder), CPU).library
    other = prepared_model(str(folder), PrepareOptions(opt="O1")).library
    assert library.parent == other.parent == cache / "models" / library.parent.name and library != other
    assert not (folder / "lib.so").exists()


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("qwen3-0.6b", {}, "the preset qwen3-0.6b is a configuration without weights"),
        ("nosuch", {}, "cannot find the model: 'nosuch' is no folder, file or preset"),
        (str(SOURCE), {"quantization": "q5"}, "unknown quantization: got 'q5'"),
        (str(SOURCE), {"conv_template": "nosuch"}, "nosuch"),
        (str(SOURCE), {"opt": "O9"}, "--opt: got 'O9'"),
        (str(SOURCE), {"overrides": "x=1"}, "--overrides: unknown key 'x'"),
        (str(SOURCE), {"device": "abacus"}, "abacus"),
        (str(SOURCE), {"model_lib": Path("nosuch.so")}, "the library nosuch.so does not exist"),
        (str(SOURCE), {"model_lib": Path("x.so"), "opt": "O1"}, "--model-lib names a compiled library"),
    ],
)
def test_what_cannot_be_prepared_leaves_nothing(cache: Path, model: str, options: dict, message: str):
    with pytest.raises(MLCError, match=message):
        prepared_model(model, PrepareOptions(**options))
    assert not cache.exists()


def test_an_encoder_is_refused_before_it_is_prepared(cache: Path, tmp_path: Path):
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = {"model_type": "bert", "vocab_size": 30, "max_position_embeddings": 16, **sizes}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match="the model turns texts into vectors; expected one that continues text"):
        prepared_model(str(tmp_path), replace(CPU, quantization="q0f32"), continues_text=True)
    assert model_cache.entries() == []


def test_a_dry_run_gives_exact_bytes(filled: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    report = preview(str(filled), CPU)
    assert report.steps == ("convert", "configure", "compile") and not cache.exists()
    monkeypatch.setenv("MLC_CACHE_DIR", str(filled.parent / "cache"))
    written = sum(path.stat().st_size for path in prepared_model(str(filled), CPU).folder.glob("params_shard_*"))
    assert (report.weight_bytes, preview(str(filled), CPU).steps) == (written, ())
    other = [preview(str(filled), replace(CPU, device=device)) for device in ("cpu", "cpu:znver4", "cuda:sm_90a")]
    assert [o.packed_bytes for o in other] == [None, kept_weights.HEADER_BYTES + written, None]
    assert report.packed_bytes == kept_weights.HEADER_BYTES + written


@pytest.mark.parametrize(("free", "scheme"), [(10**9, "q0f16"), (650_000, "q5f16_3"), (520_000, "q4f16_1")])
def test_auto_takes_what_fits_the_free_memory(cache: Path, monkeypatch: pytest.MonkeyPatch, free: int, scheme: str):
    monkeypatch.setattr(preparation, "free_memory", lambda: free)
    assert preview(str(SOURCE), replace(CPU, quantization="auto")).quantization == scheme


def test_auto_refuses_what_does_not_fit(cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(preparation, "free_memory", lambda: 1000)
    with pytest.raises(ResourceError, match=r"it takes at least \d+ bytes of 800 usable ones"):
        preview(str(SOURCE), replace(CPU, quantization="auto"))


@pytest.mark.parametrize(("memory", "scheme"), [("1GB", "q0f16"), ("560kB", "q4f16_1")])
def test_auto_takes_what_fits_a_given_memory_on_any_target(cache: Path, memory: str, scheme: str):
    options = PrepareOptions("auto", memory=memory, device="cuda:sm_90a")
    assert preview(str(SOURCE), options).quantization == scheme


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": "1GB"}, "--memory is what --quantization auto may use"),
        ({"quantization": "auto", "device": "cuda:sm_90a"}, "the target .* takes its memory"),
        ({"quantization": "auto", "memory": "much"}, "not an amount of memory: got 'much'"),
    ],
)
def test_memory_for_nothing(cache: Path, options: dict, message: str):
    with pytest.raises(UsageError, match=message):
        preview(str(SOURCE), PrepareOptions(**options))


def test_auto_shortens_the_context_where_a_whole_one_does_not_fit(
    filled: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(preparation, "LEAST_CONTEXT", 16)
    options = replace(CPU, quantization="auto", memory="430kB")
    report = preview(str(filled), options)
    assert (report.quantization, report.context_window_size) == ("q4f16_1", 112)
    assert read_chat_config(prepared_model(str(filled), options).folder).context_window_size == 112
