"""Modules of every kind verify and round-trip through text after every pass."""

from __future__ import annotations

import pytest

from mlc_compiler import IRModule, parse
from mlc_compiler.ir.structural import first_difference
from mlc_compiler.pipeline import entries, pipeline, run_passes
from mlc_compiler.script import parse as parse_script
from mlc_compiler.script import to_text
from mlc_compiler.target import Target
from mlc_compiler.verifier import verify
from tests.compiler.api import test_bad_arguments, test_functions, test_registered
from tests.compiler.api.test_examples_script import Mixed

forms = test_functions
TEXTS = {
    "returns": forms.HEADER + forms.RETURNS,
    "parameters": forms.HEADER + forms.PARAMETERS,
    "in place": forms.HEADER + forms.INPLACE,
    "calls": forms.HEADER + forms.CALLS,
    "kernels": forms.KERNELS,
    "sizes": forms.HEADER + forms.DYNAMIC,
    "registered": test_registered.MODULE,
    "arguments": test_bad_arguments.MODULE,
}
MODULES = {**{name: parse(text) for name, text in TEXTS.items()}, "mixed": Mixed}


@pytest.mark.parametrize("name", MODULES)
def test_every_stage(name: str):
    texts = []

    def check(mod: IRModule) -> None:
        verify(mod)
        text = to_text(mod)
        assert first_difference(parse_script(text.text, text.constants), mod) is None
        texts.append(text.text)

    run_passes(MODULES[name], [*entries(), *pipeline(Target("cpu:x86-64-v3"))], check=check)
    assert len(set(texts)) > 5
