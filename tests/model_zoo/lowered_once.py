"""Tensor functions that several models have, of one schedule and one lowering for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

from mlc_compiler import pipeline
from mlc_compiler.ir.module import IRModule
from mlc_compiler.ir.structural import structural_hash
from mlc_compiler.passes.base import FunctionPass
from mlc_compiler.tir.nodes import PrimFunc

_plainly = pipeline._on_each_function
_done: dict[tuple[str, ...], PrimFunc] = {}
"""Results by the names of the passes and the hash of the function."""


def _on_each_function(mod: IRModule, steps: Sequence[FunctionPass], spent: pipeline.PhaseTimes) -> IRModule:
    names = tuple(step.name for step in steps)
    functions = mod.of_type(PrimFunc)
    keys = {name: (*names, structural_hash(func)) for name, func in functions.items()}
    new = {name: func for name, func in functions.items() if keys[name] not in _done}
    lowered = _plainly(mod.with_functions(new), steps, spent).of_type(PrimFunc)
    _done.update({keys[name]: func for name, func in lowered.items()})
    return mod.updated({name: _done[key] for name, key in keys.items()})


@contextmanager
def lowered_once() -> Iterator[None]:
    """Context manager: passes over tensor functions take a result of an earlier compilation for an equal function.

    Only for compilations for one target with the same options: the results depend on the passes' parameters.
    """
    with mock.patch.object(pipeline, "_on_each_function", _on_each_function):
        yield
