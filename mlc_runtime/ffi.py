"""The package tvm_ffi, imported without torch.

tvm_ffi imports torch when it is installed, which takes a second or two and cannot be disabled. The runtime does not
need it: torch tensors are exchanged through DLPack, whether torch is imported before or after.
"""

from __future__ import annotations

import sys
from collections import UserList
from collections.abc import Iterator
from threading import get_ident
from typing import Any


class _NoTorch:
    """A ``sys.meta_path`` finder that raises ModuleNotFoundError for torch."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "torch":
            raise ModuleNotFoundError("torch is not imported for tvm_ffi", name=name)


class _Finders(UserList):
    """``sys.meta_path`` with ``_NoTorch`` first, for one thread; mutations apply to the wrapped list."""

    def __init__(self, finders: list[Any]):
        self.data = finders
        self.thread = get_ident()

    def __iter__(self) -> Iterator[Any]:
        if get_ident() == self.thread:
            yield _NoTorch
        yield from self.data


def _import_tvm_ffi() -> Any:
    """Import tvm_ffi with torch hidden from this thread; other threads' imports and finders are unaffected."""
    finders = sys.meta_path
    hiding = _Finders(finders)
    try:
        sys.meta_path = hiding  # type: ignore[assignment]  # a UserList, which shares the original list
        import tvm_ffi
    finally:
        if sys.meta_path is hiding:
            sys.meta_path = finders
    return tvm_ffi


tvm_ffi = _import_tvm_ffi()
