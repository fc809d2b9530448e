"""Kernel observers: callbacks of libraries compiled with ``observe-kernels``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mlc_runtime.arrays import tvm_ffi

OBSERVER = "mlc.observe_kernel"

Observer = Callable[[str, str, int, int, tuple[tvm_ffi.Tensor, ...]], None]
"""Takes graph function, kernel, number of the call in the graph function, number of results, and tensors.

It is called at the start of the graph function, with an empty kernel name and number -1, and after each kernel; kernels
run one after the other. The last tensors are the results. Tensors borrow the caller's memory and are valid during the
call. An exception ends the graph function's call and is raised there.
"""

_observers: list[Observer] = []


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Call ``observer`` for the kernels of all libraries in this process that are compiled with ``observe-kernels``.

    If observers are nested, only the innermost one is called.
    """
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def observe_kernel(function: str, kernel: str, number: int, results: int, *tensors: tvm_ffi.Tensor) -> None:
    """Call the observer, if there is one."""
    if _observers:
        _observers[-1](function, kernel, number, results, tensors)
