"""Optimization levels: parsing of --opt, and the passes that a level leaves out."""

from __future__ import annotations

from itertools import pairwise

import pytest

from mlc_compiler.optimization import LEVELS, Optimization
from mlc_compiler.pipeline import pipeline
from mlc_compiler.target import Target
from mlc_errors import UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Optimization()),
        ("O3", Optimization()),
        ("O0", Optimization(fusion=False, schedules=False, activation_bits=None)),
        ("act=16", Optimization(activation_bits=16)),
        ("O2;act=8", Optimization()),
        ("fusion=0; O3", Optimization()),
        (" schedules=0 ; act=exact", Optimization(schedules=False, activation_bits=None)),
    ],
)
def test_text(text: str, expected: Optimization):
    assert Optimization.parse(text) == expected
    assert Optimization.parse(expected.text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("O4", "--opt: got 'O4'; expected O0, O1, O2, O3 or KEY=VALUE;..."),
        ("fast=1", "--opt: unknown key 'fast'"),
        ("fusion=yes", "--opt: fusion is 'yes'; expected one of 0, 1"),
        ("act=4", "--opt: act is '4'; expected one of 8, 16, exact"),
        ("flashinfer=1", "--opt: flashinfer selects a library of kernels; this compiler generates all kernels"),
        ("cudagraph=0", "--opt: cudagraph cannot be chosen; repeated calls are always recorded as graphs"),
    ],
)
def test_what_cannot_be_chosen_is_named(text: str, message: str):
    with pytest.raises(UsageError) as error:
        Optimization.parse(text)
    assert error.value.message == message
    if "is '" not in message:
        assert error.value.hint == "keys are fusion (0, 1), schedules (0, 1), act (8, 16, exact)"


@pytest.mark.parametrize("target", ["cpu:x86-64-v4", "cuda:sm_90a"])
def test_a_level_runs_the_passes_of_the_level_below_and_more(target: str):
    steps = [[step.name for step in pipeline(Target(target), level)] for level in LEVELS.values()]
    for fewer, more in pairwise(steps):
        rest = iter(more)
        assert all(name in rest for name in fewer)
    assert "fuse-ops" not in steps[0] and "fuse-ops" in steps[1]
