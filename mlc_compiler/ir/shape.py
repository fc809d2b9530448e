"""Shapes of traced and symbolic tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Shape(tuple[Any, ...]):
    """The sizes of a tensor: a tuple that can be joined with lists, ``x.shape[:-1] + [n]``, and prints as a list."""

    __slots__ = ()

    def __add__(self, other: Iterable[Any]) -> Shape:
        return Shape((*self, *other)) if isinstance(other, list | tuple) else NotImplemented

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return Shape(found) if isinstance(index, slice) else found

    def __repr__(self) -> str:
        return repr(list(self))
