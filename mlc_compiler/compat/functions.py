"""``tvm.get_global_func``: registered functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlc_errors import UnsupportedError
from mlc_runtime.arrays import tvm_ffi

from .kv_state import KVState
from .runtime import ShapeTuple


def reshape(array: Any, shape: ShapeTuple) -> Any:
    """``vm.builtin.reshape``: the same memory with another shape."""
    return array.reshape(tuple(shape))


_BUILTIN: dict[str, Callable[..., Any]] = {
    "vm.builtin.reshape": reshape,
    "vm.builtin.kv_state_add_sequence": KVState.add_sequence,
    "vm.builtin.kv_state_remove_sequence": KVState.remove_sequence,
    "vm.builtin.kv_state_fork_sequence": KVState.fork_sequence,
    "vm.builtin.kv_state_popn": KVState.popn,
    "vm.builtin.kv_state_begin_forward": KVState.begin_forward,
    "vm.builtin.kv_state_end_forward": KVState.end_forward,
}


def get_global_func(name: str, allow_missing: bool = False) -> Any:
    """The function of that name: one of TVM's that this project has, or one that ``register_func`` registered.

    Raises UnsupportedError when there is none, unless ``allow_missing``, which gives None.
    """
    found = _BUILTIN.get(name) or tvm_ffi.get_global_func(name, allow_missing=True)
    if found is None and not allow_missing:
        raise UnsupportedError(f"no function {name!r} is registered", hint="register_func(name, function)")
    return found
