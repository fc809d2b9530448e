"""Garbage collection while a module is compiled."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collections() -> Iterator[None]:
    """Inside, cyclic garbage is not collected; afterwards collection is as it was before.

    Trees of the IR have no cycles, so that a collection frees next to nothing; going through all nodes again and again
    takes a sixth of a compilation.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
