"""The pass pipeline; the best file to start reading at.

The input is a module of graph functions and tensor functions. In the result, tensor functions are loop nests over
buffers, and graph functions are straight-line sequences of calls whose intermediate tensors lie in one workspace.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, islice
from pathlib import Path

from mlc_errors import STEP_ADDRESSES, MLCError, check_address_space

from .backends import backend_of
from .ir.forks import BackgroundChecks, at_once
from .ir.module import IRModule
from .ir.recursion import deep_recursion
from .ir.visitor import walk
from .optimization import Optimization
from .passes.absorb_transposes import AbsorbTransposes
from .passes.annotate_patterns import AnnotatePatterns
from .passes.apply_schedules import ApplySchedules
from .passes.base import FunctionPass, Pass
from .passes.common_subexpressions import CommonSubexpressions
from .passes.copy_results import CopyResults
from .passes.count_operations import CountOperations
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
from .passes.observe_kernels import ObserveKernels
from .passes.pack_layouts import PackLayouts
from .passes.plan_memory import PlanMemory
from .passes.resolve_match_casts import ResolveMatchCasts
from .passes.verify import Verify
from .schedules.rule import Rule
from .script.files import write_script
from .script.printer import to_text
from .target import Target, available_cores
from .tir.nodes import PrimFunc

_DEFAULT = Optimization()
NODES_WORTH_A_PROCESS = 2000  # minimum number of IR nodes to work on for which processes are forked


def entries() -> tuple[Pass, ...]:
    """The passes that ``build`` runs before ``pipeline``: afterwards every function has flat, positional parameters.

    Models exported by the toolchain have such parameters already and start with ``pipeline``.
    """
    return (InlineCalls(), EliminateDead(), MakeEntries(), ResolveMatchCasts(), KeepSchedules())


def methods() -> tuple[Pass, ...]:
    """``entries`` for exported methods of ``nn`` modules: weights stay one tuple, so that they can be packed."""
    return tuple(step for step in entries() if not isinstance(step, MakeEntries))


def pipeline(
    target: Target,
    optimization: Optimization = _DEFAULT,
    first_rules: Sequence[Rule] = (),
    observe: ObserveKernels | None = None,
) -> tuple[Pass, ...]:
    """All passes of the compilation for a target, in order: the common ones, and those of its back end.

    first_rules: schedule rules that are tried before those of the back end, such as ``tuning.tuned.Tuned``. observe:
    makes the result call an observer before and after each kernel.
    """
    own = backend_of(target).lowering(target, optimization)
    rules = (*first_rules, *own.rules)
    graph = (FoldConstants(), CommonSubexpressions(), *own.graph, AbsorbTransposes(), EliminateDead())
    fusion = (FuseOps(own.prologues, own.gates), FuseTensorFunctions(), EliminateDead())
    return (
        Verify(after="the front end"),
        *(graph if optimization.fusion else ()),
        # lowering to tensor functions, and fusion
        Legalize(own.operators),
        AnnotatePatterns(),
        *(fusion if optimization.fusion else ()),
        CopyResults(),
        CountOperations(),
        # scheduling for the target
        MarkActivations(),
        *own.kernels,
        ApplySchedules(rules, target),
        PackLayouts(),
        EliminateDead(),
        ApplySchedules(rules, target),  # the packing functions that PackLayouts added
        # lowering to loops and memory planning
        LowerBlocks(),
        LiftAllocs(),
        *own.loops,
        PlanMemory(),
        *(() if observe is None else (observe,)),
        *own.calls,
        LowerMath(own.math),
        Verify(after="the passes"),
    )


@dataclass
class PhaseTimes:
    """Seconds by phase, in order of first run; a pass that runs twice has the sum of both runs."""

    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, seconds: float) -> None:
        """Add the time of a run."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


@deep_recursion
def run_passes(
    mod: IRModule,
    passes: Sequence[Pass],
    *,
    times: PhaseTimes | None = None,
    dump: Path | None = None,
    check: Callable[[IRModule], None] | None = None,
    checks: BackgroundChecks | None = None,
) -> IRModule:
    """Run passes in order.

    times: receives the seconds of each pass. dump: a folder to which the module is written before the first and after
    each pass (``script/files.py``). check: called with the module after each pass; an MLCError that it raises gets the
    name of the pass in ``where``. Without these two, consecutive passes over tensor functions run on several functions
    at once, in as many processes as there are cores. checks: verifies large modules while the following passes run.
    """
    if dump is not None:
        dump.mkdir(parents=True, exist_ok=True)
        write_script(dump / "00-input.py", to_text(mod))
    times = times or PhaseTimes()
    for number, steps in enumerate(_groups(passes, together=check is None and dump is None), 1):
        mod = _run(mod, steps, times, checks)
        if check is not None:
            _check_after(steps[-1], mod, check)
        if dump is not None:
            write_script(dump / f"{number:02}-{steps[-1].name}.py", to_text(mod))
    return mod


def _groups(passes: Sequence[Pass], together: bool) -> Iterator[Sequence[Pass]]:
    """Split the passes into groups of one; with ``together``, consecutive FunctionPasses form one group."""
    for by_function, steps in groupby(passes, lambda step: isinstance(step, FunctionPass)):
        group = tuple(steps)
        yield from [group] if by_function and together else ((step,) for step in group)


def _run(mod: IRModule, steps: Sequence[Pass], times: PhaseTimes, checks: BackgroundChecks | None) -> IRModule:
    check_address_space("compiling", STEP_ADDRESSES)
    start, spent = time.perf_counter(), PhaseTimes()
    by_function = [step for step in steps if isinstance(step, FunctionPass)]
    if by_function:
        mod = _on_each_function(mod, by_function, spent)
    elif isinstance(steps[0], Verify) and checks is not None and _is_worth_a_process(mod):
        checks.start(partial(steps[0].run, mod))
        spent.add(steps[0].name, 1.0)
    else:
        mod = steps[0].run(mod)
        spent.add(steps[0].name, 1.0)
    wall, total = time.perf_counter() - start, sum(spent.seconds.values())
    for name, seconds in spent.seconds.items():
        times.add(name, wall * seconds / total)
    return mod


def _on_each_function(mod: IRModule, steps: Sequence[FunctionPass], spent: PhaseTimes) -> IRModule:
    """Run passes on the tensor functions, several functions at once; ``spent`` adds up the seconds of all processes."""

    def work(item: tuple[str, PrimFunc]) -> tuple[str, PrimFunc, list[float]]:
        name, func = item
        seconds = []
        for step in steps:
            start = time.perf_counter()
            func = step.function(func, name)
            seconds.append(time.perf_counter() - start)
        return name, func, seconds

    sizes = {name: sum(1 for _ in walk(func)) for name, func in mod.of_type(PrimFunc).items()}
    processes = available_cores() if sum(sizes.values()) > NODES_WORTH_A_PROCESS else 1
    longest_first = sorted(mod.of_type(PrimFunc).items(), key=lambda item: -sizes[item[0]])
    done = at_once(work, longest_first, processes)
    for step, seconds in zip(steps, zip(*(each for _, _, each in done), strict=True), strict=False):
        spent.add(step.name, sum(seconds))
    return mod.updated({name: func for name, func, _ in done})


def _is_worth_a_process(mod: IRModule) -> bool:
    return next(islice(walk(tuple(mod.functions.values())), NODES_WORTH_A_PROCESS, None), None) is not None


def _check_after(step: Pass, mod: IRModule, check: Callable[[IRModule], None]) -> None:
    try:
        check(mod)
    except MLCError as error:
        error.where = (*error.where, f"the module after the pass {step.name}")
        raise
