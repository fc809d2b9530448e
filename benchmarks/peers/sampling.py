"""Take samples of several engines in turns; disturbed samples are repeated, and excluded from medians."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from peers import processor
from peers.cells import FEW_TOKENS, Cell, Kind
from peers.shapes import ROOM

ENOUGH = 3  # quiet samples that suffice for a slow engine


class EngineError(Exception):
    """An engine does not support a request, or its worker has ended."""


@dataclass(frozen=True)
class Sample:
    """A sample. others: number of CPUs that other programs used meanwhile."""

    seconds: float
    others: float


@dataclass(frozen=True)
class Settings:
    """Settings. repeats: quiet samples per engine. tries: maximum number of samples. steps: tokens decoded per sample.

    seconds: after this time, an engine needs only ENOUGH quiet samples. others: CPUs that other programs may use in
    a quiet sample. patience: seconds to wait for quiet before a sample.
    """

    repeats: int = 5
    tries: int = 12
    steps: int = 32
    seconds: float = 60.0
    others: float = 0.1
    patience: float = 30.0

    def __post_init__(self) -> None:
        if (self.tries + 1) * self.steps > ROOM:
            raise ValueError(f"{self.tries} tries and a warm-up of {self.steps} steps; expected at most {ROOM} tokens")


class Sampled(Protocol):
    """The interface of ``client.Worker`` for sampling."""

    def begin(self, tokens: int, batch: int, seed: int) -> Sample: ...

    def step(self, count: int) -> Sample: ...

    def end(self) -> None: ...


@dataclass
class Taken:
    """The samples of one engine for a cell. failed: why there are no more."""

    settings: Settings
    samples: list[Sample] = field(default_factory=list)
    failed: str | None = None

    @property
    def quiet(self) -> list[float]:
        """Seconds of the undisturbed samples."""
        return [s.seconds for s in self.samples if s.others <= self.settings.others]

    @property
    def is_done(self) -> bool:
        spent = sum(s.seconds for s in self.samples)
        wanted = self.settings.repeats if spent < self.settings.seconds else min(ENOUGH, self.settings.repeats)
        return self.failed is not None or len(self.quiet) >= wanted or len(self.samples) >= self.settings.tries

    @property
    def median(self) -> float | None:
        """Median seconds; None if fewer than ENOUGH samples (or fewer than ``repeats``) were quiet."""
        wanted = min(ENOUGH, self.settings.repeats)
        return statistics.median(self.quiet) if self.failed is None and len(self.quiet) >= wanted else None


def take(cell: Cell, engines: Mapping[str, Sampled], settings: Settings) -> dict[str, Taken]:
    """Measure a cell: one sample of each engine in turn, until each has enough.

    Decode samples continue each other: sample r of every engine begins r * ``steps`` after ``cell.tokens``.
    """
    taken = {name: Taken(settings) for name in engines}
    for turn in range(settings.tries + 1):
        for name, engine in engines.items():
            if not taken[name].is_done:
                _turn(cell, engine, taken[name], turn)
    if cell.kind is Kind.DECODE:
        for engine in engines.values():
            with suppress(EngineError):  # of those that have failed
                engine.end()
    return taken


def _turn(cell: Cell, engine: Sampled, taken: Taken, turn: int) -> None:
    """Take one sample; turn 0 is a warm-up, and opens the sequences for decode."""
    settings = taken.settings
    try:
        if turn:
            processor.wait_until_quiet(settings.others, settings.patience)
            taken.samples.append(_sample(cell, engine, settings, turn))
        elif cell.kind is Kind.PREFILL:
            engine.begin(min(cell.prompt, FEW_TOKENS), cell.batch, turn)
            engine.end()
        else:
            engine.begin(cell.prompt, cell.batch, turn)
            engine.step(settings.steps)
    except EngineError as error:
        taken.failed = str(error)


def _sample(cell: Cell, engine: Sampled, settings: Settings, turn: int) -> Sample:
    if cell.kind is Kind.DECODE:
        return engine.step(settings.steps)
    sample = engine.begin(cell.prompt, cell.batch, turn)
    engine.end()
    return sample
