"""Matmuls of experts on CPUs, against numpy."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_compiler.ir.expr import Call, Var, const
from mlc_compiler.ir.simplify import simplify
from mlc_compiler.ir.visitor import substitute, walk
from mlc_compiler.pipeline import pipeline, run_passes
from mlc_compiler.target import Target
from mlc_compiler.tir.nodes import PrimFunc
from tests.compiler.backends.expert_matmuls import Case, call, compiled, expert_ids

IN_INTEGERS = 3e-4  # activations have 16 bits
IDS = (0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 0)
TARGETS = ("cpu", "cpu:x86-64-v3", "cpu:generic")


def check(case: Case, target: str = "cpu") -> None:
    mod, arguments, parameters, expected = case.module()
    library, packing = compiled(mod, target, "act=16")
    got = call(library, arguments, parameters, packing)
    tolerance = IN_INTEGERS if case.scheme.startswith("q") and "q0" not in case.scheme else 1e-5
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "scheme",
    [
        "q0f32",
        "q0f16",
        "q0bf16",
        "q2f16_nl8",
        "q3f16_1",
        "q4f16_0",
        "q4f16_1",
        "q8f16_1",
        "e4m3_e4m3_f16",
        "e5m2_e5m2_f16",
    ],
)
def test_schemes(scheme: str) -> None:
    """Runs longer than the rows in registers, runs of one row, an expert without rows; columns beyond the last tile."""
    check(Case(IDS, 5, 48, 72, scheme, "float32", bias=True))
    check(Case(IDS, 5, 33, 45, scheme, "float32", gated=True, symbolic=False))


@pytest.mark.parametrize("target", TARGETS)
def test_instruction_sets(target: str) -> None:
    check(Case(IDS, 4, 64, 96, "q4f16_1", "float32"), target)
    check(Case(IDS, 4, 40, 96, "q0f16", "float32"), target)


def scheduled(case: Case) -> list[PrimFunc]:
    """The scheduled tensor functions of the experts' matmuls."""
    passes = pipeline(Target("cpu:x86-64-v4"))
    names = [p.name for p in passes]
    mod = run_passes(case.module()[0], passes[: names.index("lower-blocks")])
    return [f for name, f in mod.of_type(PrimFunc).items() if "linear" in name]


def rules(case: Case) -> list[tuple[object, object]]:
    """The schedule rule of each tensor function, and its attribute ``expert_digits``."""
    return [(f.attrs.get("schedule"), f.attrs.get("expert_digits")) for f in scheduled(case)]


def test_which_kernel() -> None:
    """Integers for quantized weights, where the instruction's lanes divide the columns; the bias is fused."""
    case = Case(IDS, 4, 48, 96, "q4f16_1", "float32", bias=True)
    assert rules(case) == [("ExpertMatmul", 1)]
    assert rules(replace(case, columns=36)) == [("ExpertMatmul", None)]
    assert rules(replace(case, scheme="q0f16")) == [("ExpertMatmul", None)]


def test_codes_are_prefetched() -> None:
    """20 groups of 4 lines: 3 KiB later in a tile, which is of the next run's expert after the last group."""
    (func,) = scheduled(Case(IDS, 4, 64, 640, "q4f16_1", "float32"))
    (address,) = (n.args[0] for n in walk(func.body) if isinstance(n, Call) and n.op == "intrinsic.cpu.prefetch.l2")
    names = {n.name: n for n in walk(address) if isinstance(n, Var)}
    asked = []
    for g, line in itertools.product(range(20), range(4)):
        at = {names["g"]: const(g, "int64"), names["line"]: const(line, "int64")}
        expert, _, word, column = map(simplify, substitute(address.args[0].indices, at))
        asked.append((expert.buffer.name, word.value, column.value))
    assert sorted(asked) == [("following", word, 0) for word in range(48)] + [
        ("run", word, 0) for word in range(48, 80)
    ]


@settings(max_examples=8)
@given(
    expert_ids(most=80),
    st.integers(1, 70) | st.sampled_from([16, 32, 64]),
    st.integers(1, 100),
    st.sampled_from(["q0f16", "q4f16_1", "q4f16_0", "q3f16_1"]),
    st.booleans(),
)
def test_any_size(ids: tuple[tuple[int, ...], int], columns: int, depth: int, scheme: str, bias: bool) -> None:
    check(Case(*ids, columns, depth, scheme, "float32", bias=bias))
