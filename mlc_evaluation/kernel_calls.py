"""The calls of kernels that an observed library makes: which layer they belong to, what they read and computed."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from mlc_runtime.arrays import dtype_of
from mlc_runtime.model import CompiledModel
from mlc_runtime.model_spec import PagedKVSpec

Array = np.ndarray[Any, Any]
_NUMBER = re.compile(r"(?:^|\.)(\d+)(?:\.|$)")


@dataclass(frozen=True)
class KernelCall:
    """A call of a kernel. number: of the call in its graph function. layer: None outside of the layers.

    weights: the names of the weights among the arguments. arguments: inputs and then results, which are valid while the
    observer runs; ``results`` counts the last ones. is_state: of each argument, whether it holds states of sequences.
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
        """``layer 3, prefill kernel 12: linear``"""
        layer = "" if self.layer is None else f"layer {self.layer}, "
        return f"{layer}{self.function} kernel {self.number}: {self.kernel}"


class KernelCalls:
    """An observer that passes each call to ``visit``.

    A call's layer is that of its weights, by the number in their names; a call without weights is in the layer of the
    call before it, as attention is after the product of queries, keys and values.
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
    """A tensor in the host's memory as an array that shares it."""
    shape, dtype = tuple(tensor.shape), dtype_of(str(tensor.dtype))
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = (ctypes.c_uint8 * max(nbytes, 1)).from_address(tensor.data_ptr())
    return np.frombuffer(memoryview(memory), np.uint8, nbytes).view(dtype).reshape(shape)


def widened(array: Array) -> Array:
    """A copy in a type of numpy: bfloat16 and floats of 8 bits become float32."""
    is_numpy = array.dtype.isbuiltin == 1 or array.dtype in (ml_dtypes.int4, ml_dtypes.uint4)
    return array.copy() if is_numpy else array.astype(np.float32)


def is_float(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def stored_rows(model: CompiledModel, row: int, length: int) -> list[Array]:
    """Keys and values of the first ``length`` tokens of a sequence, [length, heads * size] for each layer's pages.

    Scaled pages of 8-bit integers are left out.
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
    """[length, L, G, D] as L times [length, G * D]"""
    return [widened(rows[:, layer]).reshape(len(rows), -1) for layer in range(rows.shape[1])]
