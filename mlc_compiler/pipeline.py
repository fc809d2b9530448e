"""The compilation, pass by pass: the first file to read.

A module of graph functions and tensor functions goes in; what comes out is loops over buffers and straight lists of
calls into one workspace, ready for code generation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlc_errors import MLCError

from .backends import backend_of
from .ir.module import IRModule
from .ir.recursion import deep_recursion
from .passes.absorb_transposes import AbsorbTransposes
from .passes.annotate_patterns import AnnotatePatterns
from .passes.apply_schedules import ApplySchedules
from .passes.base import Pass
from .passes.common_subexpressions import CommonSubexpressions
from .passes.copy_results import CopyResults
from .passes.eliminate_dead import EliminateDead
from .passes.fold_constants import FoldConstants
from .passes.fuse_ops import FuseOps
from .passes.fuse_tensor_functions import FuseTensorFunctions
from .passes.inline_calls import InlineCalls
from .passes.keep_schedules import KeepSchedules
from .passes.legalize import Legalize
from .passes.lift_allocs import LiftAllocs
from .passes.lower_blocks import LowerBlocks
from .passes.lower_math import LowerMath
from .passes.make_entries import MakeEntries
from .passes.mark_activations import MarkActivations
from .passes.pack_layouts import PackLayouts
from .passes.plan_memory import PlanMemory
from .passes.resolve_match_casts import ResolveMatchCasts
from .passes.verify import Verify
from .script.printer import to_text
from .target import Target


def entries() -> tuple[Pass, ...]:
    """What ``build`` runs before ``pipeline``: every function gets parameters that a caller can pass one by one.

    What the toolchain exports of a model has such parameters; it begins with ``pipeline``.
    """
    return (InlineCalls(), EliminateDead(), MakeEntries(), ResolveMatchCasts(), KeepSchedules())


def methods() -> tuple[Pass, ...]:
    """As ``entries``, for exported methods of ``nn`` modules: their weights stay one tuple, to be packed beforehand."""
    return tuple(step for step in entries() if not isinstance(step, MakeEntries))


def pipeline(target: Target) -> tuple[Pass, ...]:
    """Every pass of the compilation for a target, in order: the common ones, and those of its back end."""
    own = backend_of(target).lowering(target)
    return (
        Verify(after="the front end"),
        # what to compute
        FoldConstants(),
        CommonSubexpressions(),
        AbsorbTransposes(),
        EliminateDead(),
        # as which functions
        Legalize(own.operators),
        AnnotatePatterns(),
        FuseOps(),
        FuseTensorFunctions(),
        EliminateDead(),
        CopyResults(),
        Verify(after="the graph passes"),
        # how, on this target
        MarkActivations(),
        *own.kernels,
        ApplySchedules(own.rules, target),
        PackLayouts(),
        ApplySchedules(own.rules, target),  # of the functions that pack
        EliminateDead(),
        # as loops over memory
        LowerBlocks(),
        LiftAllocs(),
        *own.loops,
        PlanMemory(),
        *own.calls,
        LowerMath(),
        Verify(after="the tensor passes"),
    )


@dataclass
class PhaseTimes:
    """Seconds that each phase took, by name, in order; a pass that runs twice counts with both."""

    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, seconds: float) -> None:
        """Count another run."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


@deep_recursion
def run_passes(
    mod: IRModule,
    passes: Sequence[Pass],
    *,
    times: PhaseTimes | None = None,
    dump: Path | None = None,
    check: Callable[[IRModule], None] | None = None,
) -> IRModule:
    """Run passes in order. ``dump``: a folder that receives the module's text after each; ``check`` runs after each.

    Raises what ``check`` raises; an MLCError then says which pass left the module so.
    """
    if dump is not None:
        dump.mkdir(parents=True, exist_ok=True)
        _write(dump / "00-input.py", mod)
    for number, step in enumerate(passes, 1):
        start = time.perf_counter()
        mod = step.run(mod)
        if times is not None:
            times.add(step.name, time.perf_counter() - start)
        if check is not None:
            _check_after(step, mod, check)
        if dump is not None:
            _write(dump / f"{number:02}-{step.name}.py", mod)
    return mod


def _check_after(step: Pass, mod: IRModule, check: Callable[[IRModule], None]) -> None:
    try:
        check(mod)
    except MLCError as error:
        error.where = (*error.where, f"the module after the pass {step.name}")
        raise


def _write(path: Path, mod: IRModule) -> None:
    path.write_text(to_text(mod).text)
