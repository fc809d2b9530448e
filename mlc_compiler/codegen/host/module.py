"""The LLVM module of the host's code."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from llvmlite import ir as ll

from ...target import Target
from ..native import data_layout
from .errors import ErrorReporter


def new_module(target: Target) -> ll.Module:
    """An empty LLVM module with the triple and data layout of a target."""
    module = ll.Module("mlc")
    module.triple = target.triple
    module.data_layout = data_layout(target)
    return module


@dataclass(frozen=True)
class HostModule:
    """The module with graph functions, their entries, run-time parts and metadata. target: the host's CPU."""

    module: ll.Module
    target: Target

    @cached_property
    def errors(self) -> ErrorReporter:
        return ErrorReporter(self.module)
