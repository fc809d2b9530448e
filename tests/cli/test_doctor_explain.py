"""doctor, explain, and the codes of errors."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from mlc_cli.__main__ import main
from mlc_cli.explain import EXPLANATIONS
from mlc_compiler.codegen import link
from mlc_errors import MLCError
from mlc_toolchain import compile  # noqa: F401  # defines most classes of errors
from mlc_version import __version__
from model_zoo.registry import ARCHITECTURES


def kinds(base: type[MLCError] = MLCError) -> Iterator[type[MLCError]]:
    yield base
    for kind in base.__subclasses__():
        yield from kinds(kind)


def test_every_code_is_explained():
    own = {kind.code: kind.exit_code for kind in kinds() if "code" in vars(kind)}
    assert own == {code: found.exit_code for code, found in EXPLANATIONS.items()}


def test_explain(capsys: pytest.CaptureFixture[str]):
    assert main(["explain", "mlc4"]) == 0
    assert capsys.readouterr().out.startswith("MLC4: not enough memory or disk, or a device is missing (exit code 4)\n")
    assert main(["explain", "--json"]) == 0
    assert [row["code"] for row in json.loads(capsys.readouterr().out)["codes"]] == list(EXPLANATIONS)
    assert main(["explain", "MLC99"]) == 2
    assert "expected models, or one of MLC1, MLC2, " in capsys.readouterr().err


def test_explanations_name_nothing_that_is_not_installed(capsys: pytest.CaptureFixture[str]):
    assert not [code for code, found in EXPLANATIONS.items() if "docs/" in found.meaning + found.help]
    assert main(["explain", "models"]) == 0
    assert "llama, llama4" in capsys.readouterr().out
    assert main(["explain", "MODELS", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["models"] == sorted(ARCHITECTURES)


def test_doctor(capsys: pytest.CaptureFixture[str]):
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    found = {finding["name"]: finding for finding in report["findings"]}
    assert found["mlc_cli"]["found"].startswith(__version__) and "llvmlite" in found["packages"]["found"]
    assert report["memory"]["free_memory_bytes"] > 1 << 20
    assert not any(finding["problem"] for finding in found.values())


def test_doctor_without_a_linker(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(link.shutil, "which", lambda name: None)
    monkeypatch.setattr(link.importlib.util, "find_spec", lambda name: None)
    assert main(["doctor"]) == 4
    assert "error: linker: nothing can be compiled to a library\n  hint install one of them" in capsys.readouterr().err
