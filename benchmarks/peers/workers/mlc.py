"""This project's runtime. FILES is the compiled library, in a model folder."""

from __future__ import annotations

from pathlib import Path

from mlc_runtime import LLM
from mlc_version import __version__
from peers.workers.serve import serve


class CompiledEngine:
    """A model folder; all sequences share the calls of a batch."""

    def __init__(self, library: Path, threads: int):
        self._model = LLM(library.parent, library, threads).model
        self._rows: list[int] = []
        self._tokens: list[int] = []
        self.version = __version__
        metadata = self._model.library.metadata
        self.build = f"compiled for {metadata['target']['mcpu']} with {metadata['opt']}"

    def begin(self, prompts: list[list[int]]) -> list[int]:
        model = self._model
        self._rows = [model.pool.add() for _ in prompts]
        model.batch.assign(self._rows)
        model.batch.prefill(list(zip(self._rows, prompts, strict=True)))
        return self._sample()

    def step(self, count: int) -> list[list[int]]:
        return [self._step() for _ in range(count)]

    def end(self) -> None:
        for row in self._rows:
            self._model.pool.remove(row)

    def _step(self) -> list[int]:
        step = self._model.batch
        step.input_ids[: len(self._rows)] = self._tokens
        for element, row in enumerate(self._rows):
            step.token_pos[element] = self._model.pool.extend(row, 1)
        step.forward()
        return self._sample()

    def _sample(self) -> list[int]:
        self._tokens = self._model.batch.sampler.sample([0.0] * len(self._rows))
        return self._tokens


if __name__ == "__main__":
    serve(CompiledEngine)
