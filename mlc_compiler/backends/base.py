"""Interface of back ends, which hold everything that depends on the kind of target."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ..codegen.host.contexts import HostRuntime
from ..codegen.host.module import HostModule
from ..ir.module import IRModule
from ..optimization import Optimization
from ..passes.base import Pass
from ..passes.fuse_ops import NO_GATES, NO_PROLOGUES, Gates, Prologues
from ..relax.tensor_call import TensorExpression
from ..schedules.rule import Rule
from ..target import Target, TargetKind
from ..tir.intrinsics import TensorIntrin
from ..tir.math import ON_CPU, Rules


@dataclass(frozen=True)
class Lowering:
    """A back end's part of the pipeline; ``pipeline.py`` inserts it.

    graph: passes on graph functions before they are lowered. operators: hand-written kernels by operator name, see
    ``Legalize``. prologues, gates: see ``FuseOps``.
    kernels: passes on fused, unscheduled tensor functions. rules: schedule rules, in the order in which they are tried.
    loops: passes on lowered tensor functions (plain loops, scratch buffers allocated). calls: passes on graph functions
    with a memory plan. math: elementary functions, see ``LowerMath``.
    """

    graph: Sequence[Pass] = ()
    operators: Mapping[str, TensorExpression] = field(default_factory=dict)
    prologues: Prologues = NO_PROLOGUES
    gates: Gates = NO_GATES
    kernels: Sequence[Pass] = ()
    rules: Sequence[Rule] = ()
    loops: Sequence[Pass] = ()
    calls: Sequence[Pass] = ()
    math: Rules = field(default_factory=lambda: ON_CPU)


class Backend(ABC):
    """Compiles lowered modules for one kind of target."""

    kind: TargetKind

    @property
    def instructions(self) -> Sequence[TensorIntrin]:
        """Tensor intrinsics for ``Schedule.tensorize``."""
        return ()

    @cached_property
    def instruction_table(self) -> Mapping[str, TensorIntrin]:
        """The instructions by name."""
        return {row.name: row for row in self.instructions}

    @abstractmethod
    def lowering(self, target: Target, optimization: Optimization) -> Lowering:
        """The passes and schedule rules for a target.

        Without ``optimization.schedules``, hand-written kernels are left out, and so are optional schedule rules.
        """

    def activation_dtype(self, model_dtype: str) -> str:
        """The default dtype of activations, for a model whose weights have ``model_dtype``."""
        return "float32"

    @abstractmethod
    def host_target(self, target: Target) -> Target:
        """The CPU target that runs the graph functions; ``target`` itself if it is a CPU."""

    @abstractmethod
    def emit_kernels(self, mod: IRModule, target: Target) -> Iterator[str]:
        """Emit the tensor functions of a lowered module as LLVM modules, as text, for the host's linker."""

    @abstractmethod
    def host_runtime(self, host: HostModule, mod: IRModule, target: Target) -> HostRuntime:
        """Define contexts and kernel calls, which graph functions use, in the host module."""
