"""``tvm.get_global_func``: registered functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlc_errors import UnsupportedError
from mlc_runtime.arrays import tvm_ffi

from .kv_state import AttentionCache, KVState
from .runtime import ShapeTuple


def reshape(array: Any, shape: ShapeTuple) -> Any:
    """``vm.builtin.reshape``: a view of the same memory with another shape."""
    return array.reshape(tuple(shape))


def clear_caches(caches: Sequence[AttentionCache]) -> None:
    """``vm.builtin.attention_kv_cache_array_clear``: remove all elements of each cache."""
    for cache in caches:
        cache.clear()


def pop_caches(caches: Sequence[AttentionCache], count: int) -> None:
    """``vm.builtin.attention_kv_cache_array_popn``: remove the last elements of each cache."""
    for cache in caches:
        cache.popn(count)


_BUILTIN: dict[str, Callable[..., Any]] = {
    "vm.builtin.reshape": reshape,
    "vm.builtin.kv_state_add_sequence": KVState.add_sequence,
    "vm.builtin.kv_state_remove_sequence": KVState.remove_sequence,
    "vm.builtin.kv_state_fork_sequence": KVState.fork_sequence,
    "vm.builtin.kv_state_popn": KVState.popn,
    "vm.builtin.kv_state_begin_forward": KVState.begin_forward,
    "vm.builtin.kv_state_end_forward": KVState.end_forward,
    "vm.builtin.attention_kv_cache_array_clear": clear_caches,
    "vm.builtin.attention_kv_cache_array_popn": pop_caches,
}


def get_global_func(name: str, allow_missing: bool = False) -> Any:
    """Return a function by name: a supported built-in of TVM, or one registered by ``register_func``.

    Raises UnsupportedError for an unknown name; with ``allow_missing``, returns None.
    """
    found = _BUILTIN.get(name) or tvm_ffi.get_global_func(name, allow_missing=True)
    if found is None and not allow_missing:
        raise UnsupportedError(f"no function {name!r} is registered", hint="register_func(name, function)")
    return found
