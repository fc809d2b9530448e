"""Run selected passes over a module given as text."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from mlc_compiler.api import as_module
from mlc_compiler.backends import backend_of
from mlc_compiler.optimization import Optimization
from mlc_compiler.passes.base import Pass
from mlc_compiler.passes.observe_kernels import ObserveKernels
from mlc_compiler.pipeline import entries, pipeline
from mlc_compiler.script.files import read_constants
from mlc_compiler.script.parser import parse
from mlc_compiler.script.printer import ScriptText, to_text
from mlc_compiler.target import Target
from mlc_errors import UsageError
from mlc_toolchain.text_files import read_text

_NEXT_PASS = re.compile(r",(?=\s*[A-Za-z_][\w-]*\s*(?:[:,]|$))")
"""A comma before the name of a pass; commas before ``option=value`` separate the options of one pass."""


def known_passes(target: Target) -> dict[str, type[Pass]]:
    """All passes by name, including optional ones, in the order in which a compilation for a target runs them."""
    return {step.name: type(step) for step in (*entries(), *pipeline(target, observe=ObserveKernels()))}


def run_passes(file: Path, passes: Sequence[str], device: str = "auto") -> ScriptText:
    """Run passes over the module in `file` and print it. A single function becomes a module.

    Each string is one or more passes, separated by commas; a pass is `name` or `name:option=value,option=value`.

    Raises UsageError for an unknown pass or option, MLCError for text that is not a module.
    """
    target = Target(device)
    steps = [make_pass(spec.strip(), target) for listed in passes for spec in _NEXT_PASS.split(listed)]
    parsed = parse(read_text(file), read_constants(file), str(file))
    if not steps:
        return to_text(parsed)
    module = as_module(parsed)
    for step in steps:
        module = step.run(module)
    return to_text(module)


def make_pass(spec: str, target: Target) -> Pass:
    """Parse a pass such as `fold-constants:max_elements=8`; target and schedule rules are filled in."""
    name, _, text = spec.partition(":")
    passes = known_passes(target)
    if name not in passes:
        close = get_close_matches(name.replace("_", "-"), passes)
        hint = f"did you mean {' or '.join(close)}?" if close else None
        raise UsageError(f"no pass {name!r}; expected one of {', '.join(passes)}", hint=hint)
    fields = {field.name for field in dataclasses.fields(passes[name])}
    given = {"target": target, "rules": backend_of(target).lowering(target, Optimization()).rules}
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
