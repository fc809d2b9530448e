"""Kernel calls of an observed library: their layer, arguments and results."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from mlc_runtime.dtypes import dtype_of
from mlc_runtime.model import CompiledModel
from mlc_runtime.model_spec import PagedKVSpec

Array = np.ndarray[Any, Any]
_NUMBER = re.compile(r"(?:^|\.)(\d+)(?:\.|$)")


@dataclass(frozen=True)
class KernelCall:
    """A call of a kernel. number: of the call in its graph function. layer: None outside of the layers.

    weights: names of the weights among the arguments. arguments: inputs, then results, valid while the
    observer runs; results: number of results. is_state: for each argument, whether it is a state array.
    """

    function: str
    kernel: str
    number: int
    layer: int | None
    weights: tuple[str, ...]
    arguments: tuple[Array, ...]
    results: int
    is_state: tuple[bool, ...]

    @property
    def outputs(self) -> tuple[Array, ...]:
        return self.arguments[len(self.arguments) - self.results :]

    @property
    def place(self) -> str:
        """A description such as ``layer 3, prefill kernel 12: linear``."""
        layer = "" if self.layer is None else f"layer {self.layer}, "
        return f"{layer}{self.function} kernel {self.number}: {self.kernel}"


class KernelCalls:
    """An observer that passes each call to ``visit``.

    A call's layer is the number in the names of its weights; a call without weights belongs to the layer of the
    preceding call, such as attention after the projection of queries, keys and values.
    """

    def __init__(self, model: CompiledModel, visit: Callable[[KernelCall], None]):
        self.visit = visit
        self._weights = {a.ctypes.data: p.name for a, p in zip(model.params.arrays, model.spec.params, strict=True)}
        self._states = {a.ctypes.data for a in model.pool.inputs.values() if a.ndim > 2}
        self._layer: int | None = None

    def __call__(self, function: str, kernel: str, number: int, results: int, tensors: tuple[Any, ...]) -> None:
        if not kernel:
            self._layer = None
            return
        arrays = tuple(map(as_view, tensors))
        addresses = [a.ctypes.data for a in arrays]
        weights = tuple(self._weights[a] for a in addresses if a in self._weights)
        if weights:
            self._layer = layer_of(weights[0])
        is_state = tuple(a in self._states for a in addresses)
        self.visit(KernelCall(function, kernel, number, self._layer, weights, arrays, results, is_state))


def layer_of(name: str) -> int | None:
    """The number in the name of a weight or module: 3 of ``model.layers.3.mlp.up_proj.weight``; None without one."""
    found = _NUMBER.search(name)
    return int(found.group(1)) if found else None


def as_view(tensor: Any) -> Array:
    """A view of a tensor in host memory as a numpy array."""
    shape, dtype = tuple(tensor.shape), dtype_of(str(tensor.dtype))
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = (ctypes.c_uint8 * max(nbytes, 1)).from_address(tensor.data_ptr())
    return np.frombuffer(memoryview(memory), np.uint8, nbytes).view(dtype).reshape(shape)


def widened(array: Array) -> Array:
    """A copy in a numpy dtype: bfloat16 and 8-bit floats become float32."""
    is_numpy = array.dtype.isbuiltin == 1 or array.dtype in (ml_dtypes.int4, ml_dtypes.uint4)
    return array.copy() if is_numpy else array.astype(np.float32)


def is_float(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def stored_rows(model: CompiledModel, row: int, length: int) -> list[Array]:
    """Keys and values of the first ``length`` tokens of a sequence, [length, heads * size] for each layer's pages.

    int8 pages with scales are skipped.
    """
    found: list[Array] = []
    positions = np.arange(length)
    for state in model.spec.states:
        if not isinstance(state, PagedKVSpec) or state.scale_dtype is not None:
            continue
        inputs = model.pool.inputs
        pages = inputs[f"{state.prefix}page_table"][row, positions // state.page_size]
        slots = positions % state.page_size
        keys = inputs[f"{state.prefix}k_pages"][:, pages, :, :, slots]  # [length, L, G, D]
        found += _layers(keys)
        if state.v_head_dim is not None:
            found += _layers(inputs[f"{state.prefix}v_pages"][:, pages, :, slots, :])
    return found


def _layers(rows: Array) -> Sequence[Array]:
    """Split [length, L, G, D] into L arrays [length, G * D]."""
    return [widened(rows[:, layer]).reshape(len(rows), -1) for layer in range(rows.shape[1])]
