"""Static cost estimates of scheduled functions, for any target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ..target import Target
from ..tir.nodes import PrimFunc
from .accounting import account
from .gpu_accounting import gpu_account


class Estimate(Protocol):
    """The estimated cost of a function."""

    @property
    def seconds(self) -> float:
        """Estimated seconds of a call."""

    @property
    def problem(self) -> str:
        """Why the function cannot run, or would be slow for a reason that the seconds leave out; empty otherwise."""

    @property
    def features(self) -> list[float]:
        """The inputs of the learned cost model."""


_ESTIMATES: Mapping[str, Callable[[PrimFunc, Target, Mapping[str, int]], Estimate]] = {
    "cpu": account,
    "cuda": gpu_account,
}


def estimate(func: PrimFunc, target: Target, sizes: Mapping[str, int]) -> Estimate:
    """Estimate the cost of a scheduled function, for the given values of symbolic sizes."""
    return _ESTIMATES[target.kind](func, target, sizes)
