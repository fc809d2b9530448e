"""``tvm.get_global_func``: registered functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlc_errors import UnsupportedError
from mlc_runtime.arrays import tvm_ffi

from .runtime import ShapeTuple


def reshape(array: Any, shape: ShapeTuple) -> Any:
    """``vm.builtin.reshape``: the same memory with another shape."""
    return array.reshape(tuple(shape))


_BUILTIN: dict[str, Callable[..., Any]] = {"vm.builtin.reshape": reshape}


def get_global_func(name: str, allow_missing: bool = False) -> Any:
    """The function of that name: one of TVM's that this project has, or one that ``register_func`` registered.

    Raises UnsupportedError when there is none, unless ``allow_missing``, which gives None.
    """
    found = _BUILTIN.get(name) or tvm_ffi.get_global_func(name, allow_missing=True)
    if found is None and not allow_missing:
        raise UnsupportedError(f"no function {name!r} is registered", hint="register_func(name, function)")
    return found
