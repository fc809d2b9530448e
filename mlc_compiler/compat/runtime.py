"""``tvm.runtime``: devices and shapes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """A device: its kind, as in a target, and its index."""

    type: str
    index: int = 0


def device(name: str, index: int = 0) -> Device:
    """Parse a device name such as ``cuda`` or ``cuda:1``."""
    kind, _, number = name.partition(":")
    return Device("cpu" if kind == "llvm" else kind, int(number or index))


def cpu(index: int = 0) -> Device:
    """The CPU."""
    return Device("cpu", index)


def cuda(index: int = 0) -> Device:
    """An NVIDIA GPU."""
    return Device("cuda", index)


class ShapeTuple(tuple[int, ...]):
    """A tuple of integers; functions also accept a one-element tuple in place of an integer."""

    __slots__ = ()

    def __new__(cls, values: Iterable[int]) -> ShapeTuple:
        return super().__new__(cls, map(int, values))
