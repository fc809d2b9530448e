"""The package tvm_ffi, imported without torch.

It imports torch wherever that is installed, a second or two of start-up, and has no switch for that. Nothing here needs
it: tensors of torch come and go by DLPack, whether torch is imported before or after.
"""

from __future__ import annotations

import sys
from collections import UserList
from collections.abc import Iterator
from threading import get_ident
from typing import Any


class _NoTorch:
    """A finder of modules that says there is no torch."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "torch":
            raise ModuleNotFoundError("torch is not imported for tvm_ffi", name=name)


class _Finders(UserList):
    """``sys.meta_path`` with ``_NoTorch`` in front, for one thread; whatever changes it changes the list itself."""

    def __init__(self, finders: list[Any]):
        self.data = finders
        self.thread = get_ident()

    def __iter__(self) -> Iterator[Any]:
        if get_ident() == self.thread:
            yield _NoTorch
        yield from self.data


def _import_tvm_ffi() -> Any:
    """Two assignments, no change in place: other threads find torch meanwhile, and lose no change of theirs."""
    finders = sys.meta_path
    hiding = _Finders(finders)
    try:
        sys.meta_path = hiding  # type: ignore[assignment]  # a UserList, so that what changes it changes the list itself
        import tvm_ffi
    finally:
        if sys.meta_path is hiding:
            sys.meta_path = finders
    return tvm_ffi


tvm_ffi = _import_tvm_ffi()
