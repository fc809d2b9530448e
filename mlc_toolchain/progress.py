"""Progress reports of long operations: plain values passed to one callable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """Progress of one stage: reported at its start (done 0), as it advances, and at its end (done == total).

    stage: its name, e.g. "convert". done/total: numbers of items (tensors, functions), named by unit.
    done_bytes/total_bytes: the same in bytes if the time depends on them, else 0. detail: the current item.
    """

    stage: str
    done: int
    total: int
    unit: str = ""
    done_bytes: int = 0
    total_bytes: int = 0
    detail: str = ""


Progress = Callable[[Step], None]


def silent(step: Step) -> None:
    """A Progress that ignores every step."""
