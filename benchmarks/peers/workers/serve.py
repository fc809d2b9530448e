"""The protocol of a worker, the same for all engines; only Python's own library is imported here.

    python -m peers.workers.NAME FILES THREADS

The first line that a worker writes is an ``About``. Then each request has an answer:
``{"begin": {"tokens": n, "batch": b, "seed": s}}`` or ``{"begin": {"ids": [[…]]}}`` reads prompts into an empty cache,
``{"step": n}`` decodes n tokens greedily for each sequence, ``{"end": true}`` removes the sequences. The answer is
``{"seconds": …, "tokens": [[…]]}``, a list for each step, or ``{"error": …}``. The end of the input ends the worker.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TextIO

IDS = (100, 40000)  # range of prompt ids: ordinary tokens in all models' vocabularies


class Engine(Protocol):
    """A loaded model. One set of sequences is open at a time; no engine stops at an end token."""

    version: str
    build: str

    def begin(self, prompts: list[list[int]]) -> list[int]:
        """Read prompts of equal length, and return the most likely token after each."""
        ...

    def step(self, count: int) -> list[list[int]]:
        """Run ``count`` greedy steps; returns the tokens of each step, one for each sequence."""
        ...

    def end(self) -> None:
        """Remove the sequences."""
        ...


@dataclass(frozen=True)
class About:
    """An engine's description. build: compiler or target. load_s: seconds until the second token of a prompt."""

    version: str
    build: str
    load_s: float


def serve(load: Callable[[Path, int], Engine]) -> None:
    """Answer requests until stdin ends. load: from the model's files and the number of threads."""
    answers = _private_stdout()
    begin = time.perf_counter()
    engine = load(Path(sys.argv[1]), int(sys.argv[2]))
    engine.begin([[IDS[0]]])
    engine.step(1)
    engine.end()
    _write(answers, asdict(About(engine.version, engine.build, time.perf_counter() - begin)))
    for line in sys.stdin:
        _write(answers, _answer(engine, json.loads(line)))


def _private_stdout() -> TextIO:
    """A private stream to stdout; what libraries print is redirected to stderr."""
    stream = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return stream


def _write(stream: TextIO, answer: dict[str, Any]) -> None:
    print(json.dumps(answer), file=stream, flush=True)


def _answer(engine: Engine, request: dict[str, Any]) -> dict[str, Any]:
    prompts = _prompts(**request["begin"]) if "begin" in request else []
    try:
        begin = time.perf_counter()
        tokens = _perform(engine, request, prompts)
        return {"seconds": time.perf_counter() - begin, "tokens": tokens}
    except Exception as error:  # whatever an engine raises is an answer
        return {"error": f"{type(error).__name__}: {error}"}


def _perform(engine: Engine, request: dict[str, Any], prompts: list[list[int]]) -> list[list[int]]:
    if prompts:
        return [engine.begin(prompts)]
    if "step" in request:
        return engine.step(request["step"])
    engine.end()
    return []


def _prompts(ids: list[list[int]] | None = None, tokens: int = 0, batch: int = 1, seed: int = 0) -> list[list[int]]:
    """The given prompts, or random ones by ``seed``; different seeds defeat prefix caches."""
    choose = random.Random(seed)
    return ids or [[choose.randrange(*IDS) for _ in range(tokens)] for _ in range(batch)]
