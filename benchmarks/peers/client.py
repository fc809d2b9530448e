"""The client of a worker: starts it, sends requests, and measures the load of other programs meanwhile."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peers import processor
from peers.files import BENCHMARKS, variables
from peers.sampling import EngineError, Sample
from peers.workers.serve import About


class Worker:
    """An engine with a loaded model in a separate process. log: receives the engine's output."""

    def __init__(self, python: Path, module: str, files: Path, threads: int, log: Path):
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        command: list[str | Path] = [python, "-m", f"peers.workers.{module}", files, str(threads)]
        with open(log, "w") as stderr:
            self._process = subprocess.Popen(
                command,
                cwd=BENCHMARKS,
                env=variables(python) | {"OMP_NUM_THREADS": str(threads)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        self.about = About(**self._answer())

    def begin(self, tokens: int, batch: int, seed: int) -> Sample:
        """Prefill random prompts, reproducible by ``seed``."""
        return self._timed({"begin": {"tokens": tokens, "batch": batch, "seed": seed}})

    def first_token(self, ids: Sequence[int]) -> int:
        """The most likely token after a prompt."""
        token = self._request({"begin": {"ids": [list(ids)]}})["tokens"][0][0]
        self.end()
        return int(token)

    def step(self, count: int) -> Sample:
        """Decode ``count`` tokens of each sequence."""
        return self._timed({"step": count})

    def end(self) -> None:
        """Remove the sequences."""
        self._request({"end": True})

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _timed(self, request: dict[str, Any]) -> Sample:
        before = processor.read([self._process.pid])
        seconds = self._request(request)["seconds"]
        return Sample(seconds, processor.others(before, processor.read([self._process.pid])))

    def _request(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise EngineError(f"the worker has ended; see {self._log}") from None
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EngineError(f"the worker has ended; see {self._log}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise EngineError(answer["error"])
        return answer
