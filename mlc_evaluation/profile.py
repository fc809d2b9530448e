"""Profile prefill and decode: the time of each kernel, measured by observers that read the clock between kernels."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlc_evaluation.observed import ModelFiles
from mlc_evaluation.step_costs import step_cost
from mlc_runtime.llm import LLM
from mlc_runtime.observation import observing
from mlc_toolchain.progress import Progress, silent

PREFILL, DECODE = "prefill", "decode"
COLUMNS = ("function", "kernel", "calls", "ms", "MB", "GB/s", "G op/s", "% of time")
STEPS = 20


@dataclass(frozen=True)
class KernelProfile:
    """A kernel in one call of a function. seconds: of all calls of the kernel together, median over repetitions.

    nbytes, operations: of one kernel call, see ``KernelCost``. share: of the time of all kernels of the function.
    """

    function: str
    kernel: str
    calls: int
    seconds: float
    nbytes: int
    operations: int | None
    share: float

    @property
    def bytes_per_second(self) -> float:
        return self.calls * self.nbytes / self.seconds

    @property
    def operations_per_second(self) -> float:
        return self.calls * (self.operations or 0) / self.seconds

    @property
    def row(self) -> tuple[str, ...]:
        """The kernel's row in a table with ``COLUMNS``."""
        return (
            self.function,
            self.kernel,
            str(self.calls),
            f"{self.seconds * 1e3:.3f}",
            f"{self.calls * self.nbytes / 1e6:.2f}",
            f"{self.bytes_per_second / 1e9:.1f}",
            "-" if self.operations is None else f"{self.operations_per_second / 1e9:.1f}",
            f"{100 * self.share:.1f}",
        )


@dataclass(frozen=True)
class Profile:
    """The kernels of ``prefill`` with a prompt of ``tokens`` tokens and of ``decode`` after it, slowest first.

    observed_seconds: by function, of all kernels together, without the time of the observers.
    """

    tokens: int
    kernels: list[KernelProfile]

    @property
    def observed_seconds(self) -> Mapping[str, float]:
        functions = dict.fromkeys(k.function for k in self.kernels)
        return {f: sum(k.seconds for k in self.kernels if k.function == f) for f in functions}


@dataclass
class KernelClock:
    """An observer that sums the time of each kernel: from the return of the observer's last call to its next call."""

    seconds: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    _last: float = 0.0

    def __call__(self, function: str, kernel: str, number: int, results: int, tensors: tuple[Any, ...]) -> None:
        now = time.perf_counter()
        if kernel:
            self.seconds[function, kernel] += now - self._last
        self._last = time.perf_counter()

    def taken(self) -> dict[tuple[str, str], float]:
        """Return and reset the seconds by function and kernel."""
        taken, self.seconds = dict(self.seconds), defaultdict(float)
        return taken


def profile(files: ModelFiles, tokens: int, repeat: int, progress: Progress = silent) -> Profile:
    """Profile a prefill of ``tokens`` tokens, ``repeat`` times, and ``STEPS`` decode steps after it.

    The model is compiled again with the same kernels.
    """
    with files.open_observed(tensors=False, progress=progress) as llm:
        samples = _samples(llm, tokens, repeat)
        metadata = llm.library.metadata
        chunk = min(tokens, llm.model.spec.prefill_chunk_size)
    costs = {
        PREFILL: step_cost(metadata, PREFILL, chunk, chunk),
        DECODE: step_cost(metadata, DECODE, 1, tokens + STEPS // 2),
    }
    medians = {key: float(np.median([s[key] for s in taken])) for taken in samples for key in taken[0]}
    totals = {name: sum(s for (function, _), s in medians.items() if function == name) for name in costs}
    kernels = [
        KernelProfile(
            name, k.kernel, k.calls, medians[name, k.kernel], k.nbytes, k.operations, medians[name, k.kernel] / total
        )
        for name, total in totals.items()
        for k in costs[name].kernels
    ]
    return Profile(chunk, sorted(kernels, key=lambda k: (k.function != PREFILL, -k.seconds)))


def _samples(llm: LLM, tokens: int, repeat: int) -> list[list[dict[tuple[str, str], float]]]:
    """Seconds by function and kernel, for each prefill and each decode step."""
    ids = np.random.default_rng(0).integers(0, int(llm.library.metadata["active_vocab_size"]), tokens).tolist()
    clock = KernelClock()
    prefills, steps = [], []
    with observing(clock):
        for number in range(repeat + 1):
            session = llm.new_session()
            prefills.append(_taken(clock, PREFILL, lambda s=session: s.prefill(ids[: s.model.spec.prefill_chunk_size])))
            count = STEPS if number == repeat else 0
            steps += [_taken(clock, DECODE, lambda s=session: s.append(ids[0])) for _ in range(count)]
            session.close()
    return [prefills[1:], steps]


def _taken(clock: KernelClock, function: str, call: Any) -> dict[tuple[str, str], float]:
    call()
    return {key: seconds for key, seconds in clock.taken().items() if key[0] == function}
