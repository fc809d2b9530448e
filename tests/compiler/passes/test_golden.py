"""Every ``<pass>/<case>.py`` beside this file: a module, the line ``# ----``, and what the pass makes of it."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from mlc_compiler.ir.module import IRModule
from mlc_compiler.ir.structural import first_difference
from mlc_compiler.passes.absorb_transposes import AbsorbTransposes
from mlc_compiler.passes.annotate_patterns import AnnotatePatterns
from mlc_compiler.passes.base import Pass
from mlc_compiler.passes.common_subexpressions import CommonSubexpressions
from mlc_compiler.passes.eliminate_dead import EliminateDead
from mlc_compiler.passes.fold_constants import FoldConstants
from mlc_compiler.passes.fuse_ops import FuseOps
from mlc_compiler.passes.fuse_tensor_functions import FuseTensorFunctions
from mlc_compiler.passes.interleave_reductions import InterleaveReductions
from mlc_compiler.passes.legalize import Legalize
from mlc_compiler.passes.lift_allocs import LiftAllocs
from mlc_compiler.passes.lower_blocks import LowerBlocks
from mlc_compiler.passes.mark_activations import MarkActivations
from mlc_compiler.passes.pack_layouts import PackLayouts
from mlc_compiler.passes.place_barriers import PlaceBarriers
from mlc_compiler.passes.plan_memory import PlanMemory
from mlc_compiler.passes.vectorize_short_loops import VectorizeShortLoops
from mlc_compiler.script import parse, script
from mlc_compiler.target import target

HERE = Path(__file__).parent
SEPARATOR = "\n# ----\n"
PASSES: dict[str, Pass] = {
    "absorb_transposes": AbsorbTransposes(),
    "annotate_patterns": AnnotatePatterns(),
    "common_subexpressions": CommonSubexpressions(),
    "eliminate_dead": EliminateDead(),
    "fold_constants": FoldConstants(),
    "fuse_ops": FuseOps(),
    "fuse_tensor_functions": FuseTensorFunctions(),
    "interleave_reductions": InterleaveReductions(target("cpu:x86-64-v3")),
    "legalize": Legalize(),
    "lift_allocs": LiftAllocs(),
    "lower_blocks": LowerBlocks(),
    "mark_activations": MarkActivations(),
    "pack_layouts": PackLayouts(),
    "place_barriers": PlaceBarriers(),
    "plan_memory": PlanMemory(),
    "vectorize_short_loops": VectorizeShortLoops(target("cpu:x86-64-v3")),
}
CASES = sorted(HERE.glob("*/*.py"))


@pytest.mark.parametrize("case", CASES, ids=[f"{c.parent.name}/{c.stem}" for c in CASES])
def test_pass_gives_the_expected_module(case: Path, update_golden: bool) -> None:
    source, _, expected = case.read_text().partition(SEPARATOR)
    result = PASSES[case.parent.name].run(parse(source))
    if update_golden:
        expected = script(result)
        case.write_text(source + SEPARATOR + expected)
    wanted = parse(expected)
    assert first_difference(result, wanted) is None, _explain(result, wanted)
    reread = parse(script(result))
    assert first_difference(result, reread) is None, _explain(result, reread)


def test_every_folder_belongs_to_a_pass() -> None:
    assert {case.parent.name for case in CASES} == set(PASSES)


def _explain(result: IRModule, expected: IRModule) -> str:
    texts = (script(expected).splitlines(), script(result).splitlines())
    lines = difflib.unified_diff(*texts, "expected", "result", lineterm="")
    return "\n".join([f"first difference at {first_difference(result, expected)}", *lines])
