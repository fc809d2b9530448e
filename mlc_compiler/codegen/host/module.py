"""LLVM modules of kernels and of the host's code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from ...target import Target
from ...tir.nodes import PrimFunc
from .. import llvm_ir as ll
from ..native import data_layout
from .errors import ErrorReporter


def new_module(target: Target) -> ll.Module:
    """An empty LLVM module with the triple and data layout of a target."""
    module = ll.Module("mlc")
    module.triple = target.triple
    module.data_layout = data_layout(target)
    return module


def split_modules(
    funcs: Iterable[tuple[str, PrimFunc]],
    target: Target,
    instructions: int,
    emit: Callable[[ll.Module, str, PrimFunc], ll.Function],
) -> Iterator[tuple[ll.Module, list[str]]]:
    """Emit functions into LLVM modules in order, and yield each module with the names of its functions.

    A module ends with the function by which it exceeds ``instructions`` LLVM instructions, so the split does not depend
    on the compiling machine.
    """
    module, names, count = new_module(target), list[str](), 0
    for name, func in funcs:
        count += sum(block.size for block in emit(module, name, func).blocks)
        names.append(name)
        if count > instructions:
            yield module, names
            module, names, count = new_module(target), [], 0
    if names:
        yield module, names


@dataclass(frozen=True)
class HostModule:
    """The module with graph functions, their entries, run-time parts and metadata. target: the host's CPU."""

    module: ll.Module
    target: Target

    @cached_property
    def errors(self) -> ErrorReporter:
        return ErrorReporter(self.module)
