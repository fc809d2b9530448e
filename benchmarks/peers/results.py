"""Results of a run: figures of engines, with the machine, versions and options."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from peers.cells import Cell, Kind

RESULT = Path(__file__).resolve().parents[1] / "results" / "against_peers.json"


@dataclass(frozen=True)
class Figure:
    """An engine's figure for a cell. tokens_per_s: of all sequences together, from the median of the quiet samples.

    share: of the machine's limit, 0 to 1. rejected: why there is no figure. seconds, others: for every sample, its time
    and the number of CPUs that other programs used meanwhile.
    """

    tokens_per_s: float | None
    share: float | None
    rejected: str | None
    seconds: list[float]
    others: list[float]


@dataclass(frozen=True)
class Measured:
    """A cell; figures by engine."""

    cell: Cell
    figures: dict[str, Figure]


@dataclass(frozen=True)
class About:
    """An engine in a group. files: the files that it read. options: of this project's compiler, else "".

    agreement: the number of 16 positions of a text with the same most likely token as transformers in float32.
    """

    files: str
    options: str
    version: str
    build: str
    load_s: float
    agreement: int


@dataclass(frozen=True)
class Group:
    """Engines measured in turns. read_bytes_per_s, op_per_s: the machine's limits with the same number of threads."""

    model: str
    scheme: str
    threads: int
    read_bytes_per_s: float
    op_per_s: float
    others_limit: float
    steps: int
    engines: dict[str, About]
    cells: list[Measured]

    @property
    def key(self) -> tuple[str, str, int]:
        return self.model, self.scheme, self.threads


@dataclass(frozen=True)
class Result:
    """Groups measured on one machine, in one or more runs."""

    machine: str
    groups: list[Group]

    def with_group(self, group: Group) -> Result:
        """The result with ``group``, which replaces an older one."""
        return Result(self.machine, [g for g in self.groups if g.key != group.key] + [group])


def save(result: Result, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(result), indent=1) + "\n")


def load(path: Path) -> Result:
    """Load a result written by ``save``."""
    saved = json.loads(path.read_text())
    return Result(saved["machine"], [_group(group) for group in saved["groups"]])


def load_or_new(path: Path, machine: str) -> Result:
    """The saved result if it is of this machine, else an empty one."""
    saved = load(path) if path.is_file() else None
    return saved if saved is not None and saved.machine == machine else Result(machine, [])


def _group(saved: dict[str, Any]) -> Group:
    engines = {name: About(**about) for name, about in saved["engines"].items()}
    return Group(**{**saved, "engines": engines, "cells": [_measured(cell) for cell in saved["cells"]]})


def _measured(saved: dict[str, Any]) -> Measured:
    cell = Cell(**{**saved["cell"], "kind": Kind(saved["cell"]["kind"])})
    return Measured(cell, {name: Figure(**figure) for name, figure in saved["figures"].items()})
