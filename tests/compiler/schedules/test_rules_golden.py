"""Every ``<rule>/<case>.py`` beside this file: functions, the line ``# ----``, and their loops on AVX2."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlc_compiler.ir.structural import first_difference
from mlc_compiler.passes.lower_blocks import LowerBlocks
from mlc_compiler.schedules.apply import ApplySchedules
from mlc_compiler.schedules.cpu import CPU_RULES
from mlc_compiler.script import parse, script
from mlc_compiler.tir.nodes import PrimFunc
from tests.compiler.schedules.meaning import AVX2, check_meaning

SEPARATOR = "\n# ----\n"
CASES = sorted(Path(__file__).parent.glob("*/*.py"))
RULES = {"matmul": "Matmul", "row_reduction": "RowReduction", "elementwise": "Elementwise", "fallback": "Fallback"}


@pytest.mark.parametrize("case", CASES, ids=[f"{c.parent.name}/{c.stem}" for c in CASES])
def test_a_rule_gives_the_expected_loops(case: Path, update_golden: bool) -> None:
    source, _, expected = case.read_text().partition(SEPARATOR)
    scheduled = ApplySchedules(CPU_RULES, AVX2).run(parse(source))
    assert {f.attrs["schedule"] for f in scheduled.of_type(PrimFunc).values()} == {RULES[case.parent.name]}
    result = LowerBlocks().run(scheduled)
    if update_golden:
        expected = script(result)
        case.write_text(source + SEPARATOR + expected)
    assert first_difference(result, parse(expected)) is None, script(result)


@pytest.mark.parametrize("case", CASES, ids=[f"{c.parent.name}/{c.stem}" for c in CASES])
def test_the_loops_compute_the_same(case: Path) -> None:
    for func in parse(case.read_text().partition(SEPARATOR)[0]).of_type(PrimFunc).values():
        check_meaning(func, {"n": 5, "m": 7}, AVX2, RULES[case.parent.name])
