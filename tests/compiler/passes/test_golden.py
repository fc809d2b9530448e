"""Every ``<pass>/<case>.py`` beside this file: a module, the line ``# ----``, and what the pass makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlc_compiler.backends.cpu.passes.interleave_reductions import InterleaveReductions
from mlc_compiler.backends.cpu.passes.place_barriers import PlaceBarriers
from mlc_compiler.backends.cpu.passes.vectorize_short_loops import VectorizeShortLoops
from mlc_compiler.passes.absorb_transposes import AbsorbTransposes
from mlc_compiler.passes.annotate_patterns import AnnotatePatterns
from mlc_compiler.passes.base import Pass
from mlc_compiler.passes.common_subexpressions import CommonSubexpressions
from mlc_compiler.passes.eliminate_dead import EliminateDead
from mlc_compiler.passes.fold_constants import FoldConstants
from mlc_compiler.passes.fuse_ops import FuseOps
from mlc_compiler.passes.fuse_tensor_functions import FuseTensorFunctions
from mlc_compiler.passes.legalize import Legalize
from mlc_compiler.passes.lift_allocs import LiftAllocs
from mlc_compiler.passes.lower_blocks import LowerBlocks
from mlc_compiler.passes.mark_activations import MarkActivations
from mlc_compiler.passes.pack_layouts import PackLayouts
from mlc_compiler.passes.plan_memory import PlanMemory
from mlc_compiler.target import Target
from tests.compiler.golden import check_golden

HERE = Path(__file__).parent
PASSES: dict[str, Pass] = {
    "absorb_transposes": AbsorbTransposes(),
    "annotate_patterns": AnnotatePatterns(),
    "common_subexpressions": CommonSubexpressions(),
    "eliminate_dead": EliminateDead(),
    "fold_constants": FoldConstants(),
    "fuse_ops": FuseOps(),
    "fuse_tensor_functions": FuseTensorFunctions(),
    "interleave_reductions": InterleaveReductions(Target("cpu:x86-64-v3")),
    "legalize": Legalize(),
    "lift_allocs": LiftAllocs(),
    "lower_blocks": LowerBlocks(),
    "mark_activations": MarkActivations(),
    "pack_layouts": PackLayouts(),
    "place_barriers": PlaceBarriers(),
    "plan_memory": PlanMemory(),
    "vectorize_short_loops": VectorizeShortLoops(Target("cpu:x86-64-v3")),
}
CASES = sorted(HERE.glob("*/*.py"))


@pytest.mark.parametrize("case", CASES, ids=[f"{c.parent.name}/{c.stem}" for c in CASES])
def test_pass_gives_the_expected_module(case: Path, update_golden: bool) -> None:
    check_golden(case, PASSES[case.parent.name].run, update_golden)


def test_every_folder_belongs_to_a_pass() -> None:
    assert {case.parent.name for case in CASES} == set(PASSES)
