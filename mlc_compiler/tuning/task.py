"""Tuning tasks: functions to schedule, and arguments for their measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from mlc_errors import UnsupportedError

from ..ir import dtype as dt
from ..ir.expr import PrimExpr
from ..ir.visitor import walk
from ..target import Target
from ..tir.intrinsics import written_buffers
from ..tir.nodes import Buffer, BufferLoad, PrimFunc
from .record import workload_of
from .sizes import value_of

SMALL_INTEGER = 8


@dataclass(frozen=True)
class Task:
    """An unscheduled tensor function and the target.

    sizes: values of symbolic sizes and scalar parameters for the measurements, by name; others are OTHER_SIZE. calls:
    how often a program calls the function, which weighs the task. keeps_layouts: whether candidates must read their
    parameters in the layouts of the default schedule: a weight that two functions read in two layouts is not packed
    ahead of time (``PackLayouts``).
    """

    name: str
    func: PrimFunc
    target: Target
    sizes: Mapping[str, int] = field(default_factory=dict)
    calls: int = 1
    keeps_layouts: bool = False

    @cached_property
    def workload(self) -> PrimFunc:
        """The function without name, as scheduled by candidates."""
        return workload_of(self.func)

    @cached_property
    def written(self) -> tuple[int, ...]:
        """The positions of the parameters that the function writes."""
        stored = written_buffers(self.func.body)
        return tuple(i for i, p in enumerate(self.func.params) if id(p) in stored)

    def arguments(self, seed: int = 0) -> list[Any]:
        """Random arguments. Floats are normally distributed; integers that index other buffers are zero."""
        rng = np.random.default_rng(seed)
        indices = _index_buffers(self.func)
        return [self._argument(p, rng, id(p) in indices) for p in self.func.params]

    def described(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The dtype and shape of each argument."""
        return tuple((p.dtype, self._shape(p) if isinstance(p, Buffer) else ()) for p in self.func.params)

    def _shape(self, param: Buffer) -> tuple[int, ...]:
        return tuple(value_of(size, self.sizes) for size in param.shape)

    def _argument(self, param: Buffer | PrimExpr, rng: np.random.Generator, is_index: bool) -> Any:
        if not isinstance(param, Buffer):
            return value_of(param, self.sizes)
        if param.dtype not in _KNOWN:
            raise UnsupportedError(f"tuning {self.name}: no arguments for {param.name!r} of dtype {param.dtype}")
        shape, dtype = self._shape(param), dt.to_numpy(param.dtype)
        if is_index or param.dtype == "bool":
            return np.zeros(shape, dtype)
        if not dt.is_int(param.dtype):
            return rng.standard_normal(shape, np.float32).astype(dtype)
        if not dt.is_signed(param.dtype):
            return rng.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)
        return rng.integers(-SMALL_INTEGER, SMALL_INTEGER, shape, dtype)


_KNOWN = frozenset(
    f"{kind}{bits}" for kind, widths in {"float": (16, 32, 64), "int": (8, 16, 32, 64), "uint": (8, 16, 32, 64)}.items()
    for bits in widths
) | {"bfloat16", "bool", "float8_e4m3fn", "float8_e5m2"}  # fmt: skip


def _index_buffers(func: PrimFunc) -> set[int]:
    """The ``id`` of each buffer from which indices of other accesses are loaded."""
    loads = [n for n in walk(func.body) if isinstance(n, BufferLoad)]
    return {id(n.buffer) for load in loads for n in walk(load.indices) if isinstance(n, BufferLoad)}
