"""Base class of passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from ..ir.module import IRModule


@dataclass(frozen=True)
class Pass(ABC):
    """A named rewrite of a module. Options are fields; ``run`` leaves its argument as it is."""

    name: ClassVar[str]

    @abstractmethod
    def run(self, mod: IRModule) -> IRModule:
        """The rewritten module."""
