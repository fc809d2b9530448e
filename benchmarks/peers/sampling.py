"""Samples of several engines in turns: disturbed ones are taken again, and medians are of the others."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from peers import processor
from peers.cells import FEW_TOKENS, Cell, Kind
from peers.shapes import ROOM

ENOUGH = 3  # quiet samples after which a slow engine is not asked again


class EngineError(Exception):
    """An engine cannot do what it was asked for, or its worker has ended."""


@dataclass(frozen=True)
class Sample:
    """others: processors that other programs used meanwhile."""

    seconds: float
    others: float


@dataclass(frozen=True)
class Settings:
    """repeats: quiet samples of an engine. tries: samples at most. steps: tokens decoded for a sample.

    seconds: after these, an engine needs ENOUGH quiet samples only. others: processors that other programs may use in
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
    """What is measured; ``client.Worker``."""

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
        """Seconds of the samples that nothing disturbed."""
        return [s.seconds for s in self.samples if s.others <= self.settings.others]

    @property
    def is_done(self) -> bool:
        spent = sum(s.seconds for s in self.samples)
        wanted = self.settings.repeats if spent < self.settings.seconds else min(ENOUGH, self.settings.repeats)
        return self.failed is not None or len(self.quiet) >= wanted or len(self.samples) >= self.settings.tries

    @property
    def median(self) -> float | None:
        """Seconds; None when fewer than ENOUGH samples were quiet (or than ``repeats``)."""
        wanted = min(ENOUGH, self.settings.repeats)
        return statistics.median(self.quiet) if self.failed is None and len(self.quiet) >= wanted else None


def take(cell: Cell, engines: Mapping[str, Sampled], settings: Settings) -> dict[str, Taken]:
    """Measure a cell: one sample of each engine after the other, until each has enough.

    Steps of decoding follow each other, so that sample r of every engine begins r * ``steps`` after ``cell.tokens``.
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
    """Turn 0 warms up, and opens the sequences of decoding."""
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
