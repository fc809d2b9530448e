"""Base class of passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from ..ir.module import IRModule
from ..tir.nodes import PrimFunc


@dataclass(frozen=True)
class Pass(ABC):
    """A named rewrite of a module. Options are fields; ``run`` does not modify its argument."""

    name: ClassVar[str]

    @abstractmethod
    def run(self, mod: IRModule) -> IRModule:
        """Return the rewritten module."""


@dataclass(frozen=True)
class FunctionPass(Pass):
    """A pass that rewrites each tensor function independently; the pipeline may run it on several at once."""

    @abstractmethod
    def function(self, func: PrimFunc, name: str) -> PrimFunc:
        """Return the rewritten function. name: its name in the module, for messages."""

    def run(self, mod: IRModule) -> IRModule:
        return mod.updated({name: self.function(func, name) for name, func in mod.of_type(PrimFunc).items()})
