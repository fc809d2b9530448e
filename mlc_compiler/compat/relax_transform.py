"""``relax.transform``: passes under TVM's names; some depend on the current target's back end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlc_errors import UnsupportedError

from ..api import bind_params
from ..backends import Lowering, backend_of
from ..nn.extern import ExternModule
from ..optimization import Optimization
from ..passes.absorb_transposes import AbsorbTransposes
from ..passes.annotate_patterns import AnnotatePatterns
from ..passes.apply_schedules import ApplySchedules
from ..passes.common_subexpressions import CommonSubexpressions
from ..passes.eliminate_dead import EliminateDead
from ..passes.fold_constants import FoldConstants
from ..passes.fuse_ops import FuseOps as FuseOperators
from ..passes.fuse_tensor_functions import FuseTensorFunctions
from ..passes.legalize import Legalize
from ..target import as_target
from ..tuning.database import Database
from ..tuning.tuned import Tuned
from .transforms import ModulePass, PassInfo, done_by_build, own


def _lowering() -> Lowering:
    target = as_target(None)
    return backend_of(target).lowering(target, Optimization())


def BindParams(func_name: str, params: Mapping[str, Any]) -> ModulePass:
    """Replace parameters of a graph function by constants; see ``mlc_compiler.bind_params``."""
    return ModulePass(lambda mod, _: bind_params(mod, func_name, params), PassInfo("BindParams"))


def FuseTransposeMatmul() -> ModulePass:
    """Replace ``matmul(x, permute_dims(w))`` by ``linear(x, w)``."""
    return own("FuseTransposeMatmul", AbsorbTransposes())


def LegalizeOps() -> ModulePass:
    """Lower operators to calls of tensor functions."""
    return own("LegalizeOps", Legalize(_lowering().operators))


def AnnotateTIROpPattern() -> ModulePass:
    """Classify tensor functions for fusion."""
    return own("AnnotateTIROpPattern", AnnotatePatterns())


def FoldConstant() -> ModulePass:
    """Fold calls on small constants."""
    return own("FoldConstant", FoldConstants())


def EliminateCommonSubexpr() -> ModulePass:
    """Eliminate common subexpressions."""
    return own("EliminateCommonSubexpr", CommonSubexpressions())


def FuseOps() -> ModulePass:
    """Group the calls to fuse."""
    lowering = _lowering()
    return own("FuseOps", FuseOperators(lowering.prologues, lowering.gates))


def FuseTIR() -> ModulePass:
    """Merge each group into one tensor function."""
    return own("FuseTIR", FuseTensorFunctions())


def DeadCodeElimination() -> ModulePass:
    """Remove unused bindings and unreachable functions."""
    return own("DeadCodeElimination", EliminateDead())


def AttachExternModules(ext_mods: Sequence[Any]) -> ModulePass:
    """No-op, as ``build`` links C functions; raises UnsupportedError for modules other than ``nn.ExternModule``."""
    other = [m for m in ext_mods or () if not isinstance(m, ExternModule)]
    if other:
        raise UnsupportedError(f"AttachExternModules: got {type(other[0]).__name__}; expected nn.ExternModule")
    return done_by_build("AttachExternModules", "link")


def MetaScheduleApplyDatabase(work_dir: str) -> ModulePass:
    """Apply the fastest schedules that tuning found for the current target; see ``tuning``."""
    return own("MetaScheduleApplyDatabase", ApplySchedules((Tuned(Database(work_dir)),), as_target(None)))


_IN_BUILD = {
    "RewriteDataflowReshape": "fuse-ops",
    "ToNonDataflow": "plan-memory",
    "RemovePurityChecking": "plan-memory",
    "CallTIRRewrite": "copy-results",
    "StaticPlanBlockMemory": "plan-memory",
    "RewriteCUDAGraph": "split-kernels",
    "LowerAllocTensor": "plan-memory",
    "KillAfterLastUse": "plan-memory",
    "LowerRuntimeBuiltin": "place-barriers",
    "VMShapeLower": "resolve-match-casts",
    "AttachGlobalSymbol": "make-entries",
}
"""TVM passes that lower a module for its virtual machine -> the pass of ``build`` that does it here."""


def __getattr__(name: str) -> Callable[[], ModulePass]:
    if name not in _IN_BUILD:
        raise AttributeError(f"module {__name__!r} has no pass {name!r}")
    return lambda: done_by_build(name, _IN_BUILD[name])
