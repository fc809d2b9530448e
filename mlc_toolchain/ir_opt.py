"""Runs chosen passes over a module given as text: what one pass does, seen alone."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import pkgutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlc_compiler.passes
from mlc_compiler.ir.module import IRModule
from mlc_compiler.passes.base import Pass
from mlc_compiler.pipeline import RULES
from mlc_compiler.schedules.apply import ApplySchedules
from mlc_compiler.script.parser import parse
from mlc_compiler.script.printer import script
from mlc_compiler.target import Target
from mlc_compiler.target import target as find_target
from mlc_errors import UsageError


def known_passes() -> dict[str, type[Pass]]:
    """The passes by name."""
    package = mlc_compiler.passes
    names = [f"{package.__name__}.{info.name}" for info in pkgutil.iter_modules(package.__path__)]
    modules = [importlib.import_module(name) for name in names]
    members = [member for module in modules for member in vars(module).values()]
    classes = [c for c in members if isinstance(c, type) and issubclass(c, Pass) and c is not Pass]
    return dict(sorted((c.name, c) for c in [*classes, ApplySchedules]))


def run_passes(file: Path, passes: Sequence[str], device: str = "auto") -> str:
    """The module in `file` after the passes, as text. A pass is `name` or `name:option=value,option=value`.

    Raises UsageError for an unknown pass or option, MLCError for text that is not a module.
    """
    target = find_target(device)
    steps = [make_pass(spec, target) for spec in passes]
    module = parse(file.read_text(encoding="utf-8"), name=str(file))
    if steps and not isinstance(module, IRModule):
        raise UsageError(
            "passes work on modules; got a single function, expected an @I.ir_module class", where=[str(file)]
        )
    for step in steps:
        module = step.run(module)
    return script(module)


def make_pass(spec: str, target: Target) -> Pass:
    """`fuse-ops` or `fold-constants:max_elements=8` as a pass; target and schedule rules are filled in."""
    name, _, text = spec.partition(":")
    passes = known_passes()
    if name not in passes:
        raise UsageError(f"no pass {name!r}; expected one of {', '.join(passes)}")
    fields = {field.name for field in dataclasses.fields(passes[name])}
    given = {"target": target, "rules": RULES[target.kind]}
    options = _options(name, text, fields - given.keys())
    return passes[name](**options, **{key: value for key, value in given.items() if key in fields})


def _options(name: str, text: str, allowed: set[str]) -> dict[str, Any]:
    options = {}
    for item in filter(None, text.split(",")):
        key, _, value = item.partition("=")
        if key not in allowed:
            known = ", ".join(sorted(allowed)) or "none"
            raise UsageError(f"pass {name} has no option {key!r}; it has {known}")
        options[key] = _value(name, item, value)
    return options


def _value(name: str, item: str, text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise UsageError(f"pass {name}: {item!r} is not option=value with a Python literal") from None
