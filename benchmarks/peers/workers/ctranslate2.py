"""CTranslate2. FILES is a converted folder."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import ctranslate2

from peers.shapes import ROOM
from peers.workers.serve import serve


class CTranslate2:
    """The generator in a separate thread, which waits in the callback after the last requested token."""

    def __init__(self, folder: Path, threads: int):
        self._generator = ctranslate2.Generator(
            str(folder), device="cpu", compute_type="int8", intra_threads=threads, inter_threads=1
        )
        self._vocabulary = json.loads((folder / "vocabulary.json").read_text())
        self._thread: threading.Thread | None = None
        self._failed: Exception | None = None
        self._steps: list[list[int]] = []
        self._batch = self._remaining = 0
        self._stop = False
        self.version = f"ctranslate2 {ctranslate2.__version__}"
        self.build = "compute types " + ", ".join(sorted(ctranslate2.get_supported_compute_types("cpu")))

    def begin(self, prompts: list[list[int]]) -> list[int]:
        self._wanted, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._batch, self._remaining, self._stop, self._steps = len(prompts), 1, False, [[]]
        self._thread = threading.Thread(target=self._run, args=(prompts,))
        self._thread.start()
        return self._finished()[0]

    def step(self, count: int) -> list[list[int]]:
        self._steps, self._remaining = [[]], count
        self._wanted.release()
        return self._finished()

    def end(self) -> None:
        assert self._thread is not None
        self._stop = True
        self._wanted.release()
        self._thread.join()

    def _finished(self) -> list[list[int]]:
        self._done.acquire()
        if self._failed:
            raise self._failed
        return self._steps[:-1]

    def _run(self, prompts: list[list[int]]) -> None:
        try:
            self._generate(prompts)
        except Exception as error:  # the other thread raises it
            self._failed = error
            self._done.release()

    def _generate(self, prompts: list[list[int]]) -> None:
        self._generator.generate_batch(
            [[self._vocabulary[i] for i in prompt] for prompt in prompts],
            max_length=2 * ROOM,
            min_length=2 * ROOM,
            sampling_topk=1,
            include_prompt_in_result=False,
            callback=self._take,
        )

    def _take(self, result: ctranslate2.GenerationStepResult) -> bool:
        """Called for each sequence's token; True stops the sequence."""
        if self._stop:
            return True
        self._steps[-1].append(result.token_id)
        if len(self._steps[-1]) < self._batch:
            return False
        self._steps.append([])
        self._remaining -= 1
        if not self._remaining:
            self._done.release()
            self._wanted.acquire()
        return self._stop


if __name__ == "__main__":
    serve(CTranslate2)
