"""Garbage collection while a module is compiled."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collections() -> Iterator[None]:
    """Context manager that disables the cyclic garbage collector and restores its state on exit.

    Trees of the IR have no cycles, so that a collection frees next to nothing; traversing all nodes repeatedly takes a
    sixth of the compile time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
