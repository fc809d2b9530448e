"""Every ``<pass>/<case>.py`` beside this file: a module, the line ``# ----``, and the output of the pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlc_compiler.backends.cpu.passes.bfloat16_matmuls import Bfloat16Matmuls
from mlc_compiler.passes.base import Pass
from mlc_compiler.passes.observe_kernels import ObserveKernels
from mlc_compiler.pipeline import entries, methods, pipeline
from mlc_compiler.target import Target
from tests.compiler.golden import check_golden

HERE = Path(__file__).parent
TARGETS = [Target(name) for name in ("cpu:x86-64", "cpu:znver4", "cuda:sm_80", "cpu:x86-64-v3")]


def _folder(step: Pass) -> str:
    return step.name.replace("-", "_")


STEPS = (*entries(), *methods(), ObserveKernels(), *(step for target in TARGETS for step in pipeline(target)))
PASSES: dict[str, Pass] = {_folder(step): step for step in STEPS}  # of the last target, where several have a pass
PASSES["bfloat16_matmuls"] = Bfloat16Matmuls(Target("cpu:znver4"))  # the others do not multiply pairs
CASES = sorted(HERE.glob("*/*.py"))


@pytest.mark.parametrize("case", CASES, ids=[f"{c.parent.name}/{c.stem}" for c in CASES])
def test_pass_gives_the_expected_module(case: Path, update_golden: bool) -> None:
    check_golden(case, PASSES[case.parent.name].run, update_golden)


def test_every_pass_has_a_case() -> None:
    assert {case.parent.name for case in CASES} == set(PASSES)
