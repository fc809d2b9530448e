"""Time a call: repeated measurements of several calls each, and their statistics."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from mlc_errors import MLCError

MARGIN = 1.5  # factor on the estimated number of calls


@dataclass(frozen=True)
class Timing:
    """Seconds per call, one number per repetition."""

    results: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.results)

    @property
    def median(self) -> float:
        return statistics.median(self.results)

    @property
    def min(self) -> float:
        return min(self.results)

    @property
    def max(self) -> float:
        return max(self.results)

    @property
    def std(self) -> float:
        return statistics.pstdev(self.results)


@dataclass(frozen=True)
class Repetitions:
    """``repeat`` measurements of ``number`` calls, or of more, until one takes ``min_repeat_ms`` milliseconds.

    Raises MLCError for numbers of calls or repetitions below one.
    """

    number: int = 10
    repeat: int = 3
    min_repeat_ms: float = 0.0

    def __post_init__(self) -> None:
        for name, count in (("number", self.number), ("repeat", self.repeat)):
            if count < 1:
                raise MLCError(f"time_evaluator: {name} is {count}; expected at least 1")

    def measure(self, call: Callable[[], object]) -> Timing:
        """Time ``call``, after one warm-up call."""
        call()
        number, results = self.number, []
        for _ in range(self.repeat):
            seconds = _seconds(call, number)
            while seconds < self.min_repeat_ms / 1000:
                number = _more_calls(number, seconds, self.min_repeat_ms / 1000)
                seconds = _seconds(call, number)
            results.append(seconds / number)
        return Timing(tuple(results))


def _more_calls(number: int, seconds: float, target: float) -> int:
    """The number of calls that should take ``target`` seconds, given that ``number`` took ``seconds``; at most 10x."""
    ratio = min(target / seconds * MARGIN, 10.0) if seconds > 0 else 10.0
    return max(number + 1, int(number * ratio))


def _seconds(call: Callable[[], object], number: int) -> float:
    begin = time.perf_counter()
    for _ in range(number):
        call()
    return time.perf_counter() - begin
