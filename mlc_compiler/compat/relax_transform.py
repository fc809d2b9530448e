"""``relax.transform``: the passes by TVM's names; some depend on the current target's back end."""

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
    """Parameters of a graph function become constants; see ``mlc_compiler.bind_params``."""
    return ModulePass(lambda mod, _: bind_params(mod, func_name, params), PassInfo("BindParams"))


def FuseTransposeMatmul() -> ModulePass:
    """``matmul(x, permute_dims(w))`` becomes ``linear(x, w)``."""
    return own("FuseTransposeMatmul", AbsorbTransposes())


def LegalizeOps() -> ModulePass:
    """Operators become calls of tensor functions."""
    return own("LegalizeOps", Legalize(_lowering().operators))


def AnnotateTIROpPattern() -> ModulePass:
    """Tensor functions are classified."""
    return own("AnnotateTIROpPattern", AnnotatePatterns())


def FoldConstant() -> ModulePass:
    """Calls on small constants are computed."""
    return own("FoldConstant", FoldConstants())


def EliminateCommonSubexpr() -> ModulePass:
    """Equal values are computed once."""
    return own("EliminateCommonSubexpr", CommonSubexpressions())


def FuseOps() -> ModulePass:
    """Calls that become one are grouped."""
    lowering = _lowering()
    return own("FuseOps", FuseOperators(lowering.prologues, lowering.gates))


def FuseTIR() -> ModulePass:
    """Each group becomes one tensor function."""
    return own("FuseTIR", FuseTensorFunctions())


def DeadCodeElimination() -> ModulePass:
    """Unused bindings and unreachable functions are removed."""
    return own("DeadCodeElimination", EliminateDead())


def AttachExternModules(ext_mods: Sequence[Any]) -> ModulePass:
    """C functions are linked where the module calls them; others than ``nn.ExternModule`` raise UnsupportedError."""
    other = [m for m in ext_mods or () if not isinstance(m, ExternModule)]
    if other:
        raise UnsupportedError(f"AttachExternModules: got {type(other[0]).__name__}; expected nn.ExternModule")
    return done_by_build("AttachExternModules", "link")


def MetaScheduleApplyDatabase(work_dir: str) -> ModulePass:
    """Tensor functions get the fastest schedules that a search has found for the current target; see ``tuning``."""
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
"""Passes of TVM that lower a module for its virtual machine -> the pass of ``build`` that does it here."""


def __getattr__(name: str) -> Callable[[], ModulePass]:
    if name not in _IN_BUILD:
        raise AttributeError(f"module {__name__!r} has no pass {name!r}")
    return lambda: done_by_build(name, _IN_BUILD[name])
