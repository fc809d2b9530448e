"""Every option of every command, and every key of mlc-chat-config.json, has a reader."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, make_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

from mlc_cli.__main__ import COMMANDS, cli
from mlc_cli.sampling_options import Choice
from mlc_errors import MLCError, UsageError
from mlc_evaluation import benchmark
from mlc_runtime import LLM, embedding, folder_config
from mlc_runtime.sampling import Sampling
from mlc_toolchain import check_kernels, compile, convert_weight, gen_config, preparation, tune
from mlc_toolchain.chat_config import FOR_OTHER_ENGINES, ChatConfig, read_chat_config
from mlc_toolchain.model_folder import model_folder
from mlc_toolchain.model_sizes import SizeOverrides
from mlc_toolchain.prepare import prepared_model
from mlc_toolchain.prepare_plan import PrepareOptions
from tests.runtime.fake_library import FakeLibrary, metadata, write_folder
from tests.runtime.test_native import write_config

SOURCE = Path(__file__).parents[1] / "data" / "reference" / "source"
PREPARING = (PrepareOptions, make_dataclass("DryRun", ["dry_run"]))
GROUPED: dict[str, tuple[type, ...]] = {
    "gen_config": (SizeOverrides,),
    "generate": (Choice, *PREPARING),
    "chat": (Choice, *PREPARING),
    "embed": PREPARING,
    "bench": PREPARING,
    "eval": PREPARING,
    "debug_chat": PREPARING,
    "debug_compare": PREPARING,
}
"""Commands that take some of their options together, as fields of classes."""


class Stop(Exception):
    """Ends a command after its options have been read."""


# -- commands ----------------------------------------------------------------------------------------------------------


def unread_parameters(command: click.Command, grouped: tuple[type, ...] = ()) -> list[str]:
    """The parameters that neither the command's function nor a callback of their own reads."""
    assert command.callback is not None
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(command.callback))))
    loaded = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    loaded |= {f.name for kind in grouped for f in fields(kind)}
    return [
        str(p.name)
        for p in command.params
        if p.name not in loaded and (p.expose_value or p.callback is None) and p.name != "help"
    ]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_parameter_of_a_command_is_read(name: str):
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    for single in command.commands.values() if isinstance(command, click.Group) else (command,):
        assert single.params and unread_parameters(single, GROUPED.get(name, ())) == []


def test_a_planted_parameter_is_found():
    @click.command()
    @click.option("--read")
    @click.option("--planted")
    @click.option("--hidden", expose_value=False)
    def command(read: str, planted: str) -> None:
        print(read)

    assert unread_parameters(command) == ["planted", "hidden"]


# -- options of the toolchain ------------------------------------------------------------------------------------------


@contextmanager
def reads_of(kind: type) -> Iterator[set[str]]:
    """The attributes of ``kind``'s objects that are read."""
    seen: set[str] = set()

    def read(self: object, name: str) -> Any:
        seen.add(name)
        return object.__getattribute__(self, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "__getattribute__", read)
        yield seen


def unread_fields(kind: type, run: Callable[[], object]) -> list[str]:
    with reads_of(kind) as seen:
        run()
    return [f.name for f in fields(kind) if f.name not in seen]


def stop(*args: object, **kwargs: object) -> None:
    raise Stop


def compiled_until_code(options: compile.CompileOptions) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compile, "build_library", stop)
        with pytest.raises(Stop):
            compile.compile_model(options)


def checked_until_code(options: check_kernels.CheckOptions) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check_kernels, "SmallModel", stop)
        with pytest.raises(Stop):
            check_kernels.check_kernels(options)


def tuned_until_search(options: tune.TuneOptions) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tune, "tune_module", stop)
        with pytest.raises(Stop):
            tune.tune_model(options)


def test_every_option_of_the_toolchain_is_read(tmp_path: Path):
    def convert() -> None:
        report = tmp_path / "report.json"
        convert_weight.convert_weight(
            convert_weight.ConvertOptions(str(SOURCE), "q4f16_1", tmp_path / "out", report=report)
        )

    def configure() -> None:
        chosen = {"memory": "1GiB", "conv_template": "LM"}
        gen_config.gen_config(gen_config.GenConfigOptions(str(SOURCE), "q4f16_1", tmp_path / "out", **chosen))

    write_config(tmp_path)
    assert unread_fields(convert_weight.ConvertOptions, convert) == []
    assert unread_fields(gen_config.GenConfigOptions, configure) == []
    compiling = compile.CompileOptions(tmp_path, tmp_path / "lib.so", "cpu")
    assert unread_fields(compile.CompileOptions, lambda: compiled_until_code(compiling)) == []
    tuning = tune.TuneOptions(compiling, tmp_path / "db", "1s")
    assert unread_fields(tune.TuneOptions, lambda: tuned_until_search(tuning)) == []
    checking = check_kernels.CheckOptions("gpt2", device="cuda:sm_90a")
    assert unread_fields(check_kernels.CheckOptions, lambda: checked_until_code(checking)) == []


def test_every_sampling_setting_is_read(tmp_path: Path):
    llm = LLM(write_folder(tmp_path), FakeLibrary(metadata(258)))
    choice = Choice(logit_bias=("3=1",), greedy=True)
    assert unread_fields(Choice, lambda: choice.sampling(llm, 3)) == []
    assert unread_fields(Sampling, lambda: llm.generate([1, 2], max_tokens=3, stop="x")) == []


def test_every_option_of_a_preparation_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MLC_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(preparation, "compile_model", stop)

    def prepare() -> None:
        with pytest.raises(Stop):
            prepared_model(str(SOURCE), PrepareOptions(device="cpu"))

    assert unread_fields(PrepareOptions, prepare) == []


def names_read_in(module: ModuleType) -> set[str]:
    """The attributes of names ``options`` in a module's code."""
    attributes = (n for n in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(n, ast.Attribute))
    return {a.attr for a in attributes if isinstance(a.value, ast.Name) and a.value.id == "options"}


@pytest.mark.parametrize(
    ("module", "kind"),
    [(benchmark, benchmark.BenchOptions), (embedding, embedding.TextOptions)],
    ids=["bench", "embed"],
)
def test_every_option_of_a_module_is_read(module: ModuleType, kind: type):
    assert {f.name for f in fields(kind)} - names_read_in(module) == set()


def test_a_planted_field_is_found():
    planted = make_dataclass("Options", ["read", "planted"])
    assert unread_fields(planted, lambda: planted(1, 2).read) == ["planted"]


# -- keys of mlc-chat-config.json --------------------------------------------------------------------------------------


class Recorded(dict):
    """A JSON object that remembers which of its keys were asked for."""

    def __init__(self, values: dict[str, Any], seen: set[str]):
        super().__init__(values)
        self.seen = seen

    def get(self, key: str, default: Any = None) -> Any:
        self.seen.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.seen.add(key)
        return super().__getitem__(key)


def keys_of_generation(folder: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    seen: set[str] = set()
    with monkeypatch.context() as patch:
        patch.setattr(
            folder_config.json, "loads", lambda text: Recorded(json.JSONDecoder().decode(text.decode()), seen)
        )
        folder_config.generation_defaults(folder)
        folder_config.embedding_settings(folder)
    return seen


def keys_of_compilation(folder: Path) -> set[str]:
    """The keys that ``compile`` reads, but for those that it copies to the metadata."""
    with reads_of(ChatConfig) as seen:
        compiled_until_code(compile.CompileOptions(folder, folder / "lib.so", "cpu"))
    return seen


def test_every_key_of_the_configuration_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_config(tmp_path)
    read = keys_of_generation(tmp_path, monkeypatch) | keys_of_compilation(tmp_path)
    written = read_chat_config(tmp_path).to_dict()
    assert "tokenizer_files" in inspect.getsource(model_folder)  # fetched with a model of the Hub
    of_the_library = {"active_vocab_size"}  # metadata, see tests/toolchain/test_compile.py
    others = {*FOR_OTHER_ENGINES, "tokenizer_files", *of_the_library}
    assert sorted(set(written) - read - others) == []
    assert not others & (read - of_the_library)


def test_keys_that_nothing_reads_are_named(tmp_path: Path):
    write_config(tmp_path)
    path = tmp_path / "mlc-chat-config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "mean_gen_len": 128}))
    assert compile.unknown_keys(path) == ["mean_gen_len"]


@pytest.mark.parametrize("key", compile.OVERRIDES)
def test_every_override_acts_or_is_refused(tmp_path: Path, key: str):
    write_config(tmp_path)
    path = tmp_path / "mlc-chat-config.json"
    for model_type in ("llama", "mistral"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "model_type": model_type}))
        config = read_chat_config(path)
        try:
            changed = compile.model_config(config, {key: 2})
        except MLCError as error:
            assert key in str(error)
        else:
            assert changed != compile.model_config(config, {})


@pytest.mark.parametrize("key", ["tensor_parallel_shards", "pipeline_parallel_stages", "model_task", "vocab_size"])
def test_keys_of_the_configuration_that_cannot_be_compiled(tmp_path: Path, key: str):
    write_config(tmp_path)
    path = tmp_path / "mlc-chat-config.json"
    value = "embedding" if key == "model_task" else 2
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(MLCError, match=f"^{key}: got '?{value}"):
        compile.model_config(read_chat_config(path), {})


@pytest.mark.parametrize(("value", "refused"), [("true", True), ("1", True), ("false", False), ("0", False)])
def test_disaggregation(value: str, refused: bool):
    if refused:
        with pytest.raises(MLCError, match="disaggregation=.* is not supported"):
            compile.parse_overrides(f"disaggregation={value}")
    else:
        assert compile.parse_overrides(f"disaggregation={value};max_batch_size=2") == {"max_batch_size": 2}
    with pytest.raises(UsageError, match="unknown key 'disagregation'"):
        compile.parse_overrides(f"disagregation={value}")
