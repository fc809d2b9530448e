"""The distributions mlc-cli and mlc-cli-runtime, which has only what runs compiled folders."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from tests.test_layers import LAYERS, imports_of, module_files

ROOT = Path(__file__).resolve().parents[1]
RUNTIME = ROOT / "packaging" / "runtime"
COMMANDS = ("generate", "chat", "embed", "verify", "model_metadata", "cache", "explain")
"""Commands for compiled folders; what the others need, mlc-cli-runtime does not have."""
LEFT_OUT = {
    "mlc_toolchain.checkpoint_config",
    "mlc_toolchain.preparation",
    "mlc_toolchain.hub_model",
    "mlc_evaluation.observed",
    "model_zoo.registry",
}
"""Imported within functions, which other models and other commands need."""
OPTIONAL = {"PIL"}
DISTRIBUTIONS = {"tvm_ffi": "apache-tvm-ffi"}


def project(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text())


def shipped() -> set[str]:
    """The modules in the wheel of mlc-cli-runtime, by their dotted names."""
    included = project(RUNTIME)["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    paths = {(RUNTIME / source).resolve(): ROOT / place for source, place in included.items()}
    assert all(source.exists() for source in paths)
    roots = [source for source, place in paths.items() if source == place]
    return {name for name, path in module_files().items() if any(path.is_relative_to(root) for root in roots)}


def imported(roots: set[str]) -> tuple[set[str], set[str]]:
    """The modules of this project that some modules import at run time (including themselves), and the other
    packages."""
    files = module_files()
    ours, others, left = set(), set(), set(roots)
    while left:
        name = left.pop()
        ours.add(name)
        for found in imports_of(name, files[name], frozenset(files)):
            if found.typing_only or found.target in LEFT_OUT:
                continue
            package = found.target.split(".")[0]
            if found.target in files:
                left |= {found.target, *_parents(found.target, files)} - ours
            elif package not in LAYERS:
                others.add(package)
    return ours, others


def _parents(name: str, files: dict[str, Path]) -> set[str]:
    parts = name.split(".")
    return {parent for n in range(1, len(parts)) if (parent := ".".join(parts[:n])) in files}


def test_the_runtime_has_the_modules_that_its_commands_need():
    ours, _ = imported({"mlc_cli.__main__", *(f"mlc_cli.{name}" for name in COMMANDS)})
    packages = {"mlc_cli", "mlc_runtime"}  # which are shipped whole
    assert {m for m in ours if m.split(".")[0] not in packages} == {
        m for m in shipped() if m.split(".")[0] not in packages
    }


def test_the_runtime_depends_on_what_it_imports():
    needed = project(RUNTIME)["project"]["dependencies"]
    _, others = imported({name for name in shipped() if not name.startswith("mlc_cli.")} | {"mlc_cli.chat"})
    packages = {p for p in others if p not in OPTIONAL and not _is_standard(p)}
    assert {DISTRIBUTIONS.get(p, p) for p in packages} == {re.match(r"[\w-]+", line)[0] for line in needed}


def test_the_whole_distribution_has_the_dependencies_of_the_runtime():
    whole, part = project(ROOT)["project"], project(RUNTIME)["project"]
    assert set(part["dependencies"]) < set(whole["dependencies"])
    for key in ("license", "requires-python", "scripts"):
        assert part[key] == whole[key]
    assert "Apache License" in (ROOT / "LICENSE").read_text()


def _is_standard(package: str) -> bool:
    return package in sys.stdlib_module_names
