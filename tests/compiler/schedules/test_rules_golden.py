"""Every ``<rule>/<case>.py`` beside this file: functions, the line ``# ----``, and their schedules for ``TARGETS``."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from mlc_compiler.backends.cpu.schedules import CPU_RULES
from mlc_compiler.ir.module import IRModule
from mlc_compiler.passes.apply_schedules import ApplySchedules
from mlc_compiler.passes.lower_blocks import LowerBlocks
from mlc_compiler.schedules.rule import Rule
from mlc_compiler.tir.nodes import PrimFunc
from tests.compiler.golden import check_golden, source_of
from tests.compiler.schedules.meaning import AVX2, AVX512, check_meaning

CASES = sorted(Path(__file__).parent.glob("*/*.py"))


def _folder(rule: Rule) -> str:
    """``RowReduction`` as ``row_reduction``."""
    return re.sub(r"\B([A-Z])", r"_\1", type(rule).__name__).lower()


TARGETS = {"bfloat16_matmul": AVX512}
RULES = {_folder(rule): type(rule).__name__ for rule in CPU_RULES}


@pytest.mark.parametrize("case", CASES, ids=[f"{c.parent.name}/{c.stem}" for c in CASES])
def test_a_rule_gives_the_expected_loops(case: Path, update_golden: bool) -> None:
    def make(mod: IRModule) -> IRModule:
        scheduled = ApplySchedules(CPU_RULES, TARGETS.get(case.parent.name, AVX2)).run(mod)
        assert {f.attrs["schedule"] for f in scheduled.of_type(PrimFunc).values()} == {RULES[case.parent.name]}
        return LowerBlocks().run(scheduled)

    check_golden(case, make, update_golden)


@pytest.mark.parametrize("case", CASES, ids=[f"{c.parent.name}/{c.stem}" for c in CASES])
def test_the_loops_compute_the_same(case: Path) -> None:
    for func in source_of(case).of_type(PrimFunc).values():
        check_meaning(func, {"n": 5, "m": 7}, TARGETS.get(case.parent.name, AVX2), RULES[case.parent.name])


def test_every_rule_has_two_cases() -> None:
    counts = Counter(case.parent.name for case in CASES)
    assert set(counts) == set(RULES)
    assert min(counts.values()) >= 2
