"""What every command prints with --json fits the schema that it names."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from mlc_cli.__main__ import COMMANDS, cli, main
from mlc_cli.schema import schemas
from mlc_evaluation import benchmark
from mlc_evaluation.benchmark import MachineLimits
from mlc_toolchain import check_kernels, tune
from mlc_toolchain.check_kernels import CheckReport, FunctionCheck
from mlc_toolchain.kernel_checker import KernelCheck
from mlc_toolchain.kernel_resources import KernelResources
from mlc_toolchain.tune import KernelGain, TuneReport
from tests.cli.json_schema import problems

NAME = "llama-bias-tied"
MODULE = "@T.prim_func\ndef f(x: T.Buffer((4,), 'float32')):\n    for i in range(4):\n        x[i] = x[i] + 1.0\n"
RUN = ("--threads", "1")
COMMANDS_THAT_RUN = ("generate", "chat", "embed", "bench", "eval", "debug_chat", "debug_compare")
CASES: dict[str, list[str]] = {
    "convert_weight": [
        "convert_weight HF --quantization q4f16_1 -o NEW",
        "convert_weight HF --quantization q4f16_1 -o NEW --dry-run",
    ],
    "convert_weight_mapping": ["convert_weight HF --quantization q4f16_1 -o NEW --show-mapping"],
    "gen_config": ["gen_config HF --quantization q0f32 -o NEW --memory 8GiB"],
    "compile": ["compile DIR --device cpu --opt O0 -o NEW/lib.so"],
    "tune": ["tune DIR --database NEW"],
    "model_metadata": ["model_metadata LIB"],
    "model_memory": ["model_metadata LIB --memory-only"],
    "generate": [
        "generate DIR -p x --max-tokens 3 --top-logprobs 2 --raw",
        "generate DIR -p x --max-tokens 3 --num-draft 2 --raw",
    ],
    "generate_batch": ["generate DIR -p x --max-tokens 3 -n 2 --raw"],
    "chat": ["chat TALKS --max-tokens 3"],
    "embed": ["embed DIR --text one --text two --pooling last"],
    "embed_file": ["embed DIR --text one --pooling last -o NEW.npy"],
    "inspect": ["inspect LIB --tensors", "inspect DIR --tensors", "inspect HF --tensors", "inspect HF", "inspect gpt2"],
    "verify": ["verify DIR"],
    "bench": ["bench DIR --prompt-lengths 4 --generate 2 --repeat 1 --profile"],
    "eval": ["eval DIR --text TEXT --window 16 --windows 1 --against DIR --choices CHOICES"],
    "cache_list": ["cache list"],
    "cache_prune": ["cache prune --all --dry-run"],
    "doctor": ["doctor"],
    "explain": ["explain", "explain MLC3"],
    "schema": ["schema"],
    "check_kernels": ["check_kernels DIR"],
    "debug_chat": ["debug_chat DIR -p x --debug-dir NEW --compare hf:HF"],
    "debug_compare": ["debug_compare DIR -p x --reference LIB"],
    "ir_opt": ["ir_opt MODULE", "ir_opt MODULE -o NEW.py"],
    "ir_opt_passes": ["ir_opt --list"],
    "prepare": [f"{command} HF --dry-run" for command in COMMANDS_THAT_RUN],
    "error": ["verify NOWHERE", "generate DIR -p x --threads 0", "compile DIR -o NEW.so --opt O9"],
}
NEEDED = {"debug_chat": " -p x", "debug_compare": " -p x --reference LIB"}
TYPED = ["hello", '{"content": "hello"}', "/stats", '{"command": "/undo"}', "/what", "{", '{"content": 1}', "/exit"]


@pytest.fixture
def places(
    tiny_folder: Callable[[str, str], Path], checkpoint: Callable[[str], Path], tmp_path: Path, monkeypatch
) -> dict[str, str]:
    """Words of the cases -> paths. Searches, simulations and measurements of the machine give made-up results."""
    monkeypatch.setenv("MLC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(benchmark, "_limits", lambda threads: MachineLimits(2e10, 2e11, None))
    gains = [KernelGain("a", 10, 12.5, 10.0, 1.25, 40, 2), KernelGain("b", 5, None, None, None, 0, 0, "no time")]
    monkeypatch.setattr(tune, "tune_model", lambda given, progress: TuneReport("cpu", given.database, 40, gains))
    kernel = KernelCheck("k", "f", KernelResources(32, 0, 64, 0.5), error=float("nan"))
    report = CheckReport("cuda", {"layers": (9, 1)}, [kernel], [FunctionCheck("f", 1, 0.0)])
    monkeypatch.setattr(check_kernels, "check_kernels", lambda options, progress: report)
    (tmp_path / "module.py").write_text(MODULE)
    (tmp_path / "text.txt").write_text("some text that fills a window " * 4)
    question = {"query": "q", "choices": ["a", "b"], "gold": 0}
    (tmp_path / "choices.jsonl").write_text(json.dumps(question) + "\n")
    folder = tiny_folder(NAME, "q0f32")
    shutil.copytree(folder, tmp_path / "talks")
    (tmp_path / "talks" / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }} {% endfor %}")
    named = {
        "MODULE": "module.py",
        "TEXT": "text.txt",
        "CHOICES": "choices.jsonl",
        "NOWHERE": "nowhere",
        "TALKS": "talks",
    }
    named["TALKS"] = "talks"
    paths = {word: tmp_path / name for word, name in named.items()}
    paths |= {"HF": checkpoint(NAME), "DIR": folder, "LIB": folder / "lib.so"}
    paths |= {"NEW": tmp_path / "new", "NEW.npy": tmp_path / "new.npy", "NEW.py": tmp_path / "new.py"}
    paths |= {"NEW/lib.so": tmp_path / "new.so", "NEW.so": tmp_path / "new.so", "hf:HF": f"hf:{paths['HF']}"}
    return {word: str(path) for word, path in paths.items()}


def objects(text: str) -> list[dict[str, Any]]:
    """The JSON objects of an output: one, or one on each line."""
    try:
        return [json.loads(text)]
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("name", CASES)
def test_outputs_fit_their_schema(name: str, places: dict[str, str], capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = json.loads(schemas()[name].read_text())
    for case in CASES[name]:
        if name == "prepare":
            case += NEEDED.get(case.split()[0], "")
        words = [places.get(word, word) for word in case.split()]
        monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(TYPED)))
        main([*words, "--json"])
        out, err = capsys.readouterr()
        found = objects(err if name == "error" else out)
        assert found, err
        for value in found:
            assert value["schema"] == schema["$id"] and problems(value, schema) == [], case
        if name == "chat":
            assert [value["event"] for value in found if value["event"] != "text"] == EVENTS


EVENTS = ["answer", "answer", "command", "command", "error", "error", "error"]


def leaves(command: click.Command, context: click.Context, name: str) -> dict[str, click.Command]:
    """A command, or those of a group, by name."""
    if not isinstance(command, click.Group):
        return {name: command}
    return {f"{name} {inner}": command.commands[inner] for inner in command.commands}


def test_every_command_has_json_and_every_schema_a_case() -> None:
    context = click.Context(cli)
    commands: dict[str, click.Command] = {}
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        commands |= leaves(command, context, name)
    assert [n for n, c in commands.items() if "--json" not in {o for p in c.params for o in p.opts}] == []
    assert schemas().keys() == CASES.keys()
    ran = {case for cases in CASES.values() for case in cases}
    assert [name for name in commands if not any(case.startswith(name) for case in ran)] == []


def test_a_field_that_is_not_in_the_schema_is_found() -> None:
    schema = json.loads(schemas()["explain"].read_text())
    value = {"schema": "explain/1", "codes": [{"code": "MLC1", "title": "t", "meaning": "m", "exit_code": "1"}]}
    assert problems(value, schema) == ["$.codes[0]: no help", "$.codes[0].exit_code: got '1'; expected integer"]
    assert problems({**value, "more": 1, "codes": []}, schema) == ["$: more is not in the schema"]


def test_schemas_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "compile"]) == main(["schema", "compile/1"]) == 0
    assert capsys.readouterr().out == 2 * schemas()["compile"].read_text()
    assert main(["schema"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(schemas())
    assert main(["schema", "compil"]) == 2 and "did you mean compile?" in capsys.readouterr().err
    assert main(["schema", "compile/2"]) == 2
