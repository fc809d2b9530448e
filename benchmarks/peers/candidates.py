"""Install the engines of a run, make their files, and start them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from peers.catalog import ENGINES, OURS, Variant
from peers.client import Worker
from peers.environments import Environments
from peers.files import Files
from peers.results import About
from peers.sampling import EngineError
from peers.shapes import REFERENCE


@dataclass(frozen=True)
class Candidate:
    """An engine with its files for a model and a scheme. options: of this project's compiler."""

    name: str
    python: Path
    worker: str
    path: Path
    variant: Variant
    options: str = ""


@dataclass(frozen=True)
class Started:
    """A candidate with its model loaded."""

    candidate: Candidate
    worker: Worker
    about: About


class Candidates:
    """The candidates of a run. engines: names in the catalog. opts: ``--opt`` values, one own engine for each."""

    def __init__(self, scratch: Path, engines: Sequence[str], opts: Sequence[str]):
        self._scratch = scratch.resolve()
        self._environments = Environments(self._scratch)
        self._files = Files(self._scratch, self._environments)
        self._engines, self._opts = engines, opts

    def of(self, model: str, scheme: str) -> list[Candidate]:
        """The engines with a variant for the scheme; installs them and makes their files."""
        return [c for name in self._engines for c in self._of(name, model, scheme)]

    def _of(self, name: str, model: str, scheme: str) -> Iterator[Candidate]:
        engine = ENGINES[name]
        variant = engine.variants.get(scheme)
        if variant is None:
            return
        if engine.environment is not None:
            python = self._environments.python(engine.environment)
            yield Candidate(name, python, engine.worker, self._files.path(model, variant), variant)
            return
        for opt in self._opts:
            library = self._files.library(model, variant, opt)
            yield Candidate(f"{OURS} {opt}", Path(sys.executable), engine.worker, library, variant, opt)

    @contextmanager
    def started(self, candidates: Sequence[Candidate], model: str, threads: int) -> Iterator[dict[str, Started]]:
        """Context manager: the started candidates by name; those that cannot be started are printed to stderr."""
        reference = json.loads((self._files.checkpoint(model) / REFERENCE).read_text())
        with ExitStack() as stack:
            started = {}
            for c in candidates:
                try:
                    worker = Worker(c.python, c.worker, c.path, threads, self._scratch / "logs" / f"{c.name}.log")
                    stack.callback(worker.close)
                    started[c.name] = Started(c, worker, _about(c, worker, reference))
                except EngineError as error:
                    print(f"{c.name} does not start: {error}", file=sys.stderr)
            yield started


def _about(candidate: Candidate, worker: Worker, reference: dict[str, list[int]]) -> About:
    about, prompt, tokens = worker.about, reference["prompt"], reference["tokens"]
    agreed = sum(worker.first_token(prompt + tokens[:i]) == token for i, token in enumerate(tokens))
    return About(candidate.variant.name, candidate.options, about.version, about.build, about.load_s, agreed)
