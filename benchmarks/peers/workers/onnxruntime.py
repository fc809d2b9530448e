"""ONNX Runtime GenAI. FILES is a folder of its model builder."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime_genai

from peers.shapes import ROOM
from peers.workers.serve import serve

CONFIG = "genai_config.json"


class OnnxRuntime:
    """A generator for each set of sequences."""

    def __init__(self, folder: Path, threads: int):
        with tempfile.TemporaryDirectory() as overlay:
            self._model = onnxruntime_genai.Model(str(_with_threads(folder, Path(overlay), threads)))
        self._generator: onnxruntime_genai.Generator | None = None
        self.version = self.build = f"onnxruntime-genai {onnxruntime_genai.__version__}"

    def begin(self, prompts: list[list[int]]) -> list[int]:
        length = len(prompts[0]) + ROOM
        params = onnxruntime_genai.GeneratorParams(self._model)
        params.set_search_options(max_length=length, min_length=length, do_sample=False, batch_size=len(prompts))
        self._generator = onnxruntime_genai.Generator(self._model, params)
        self._generator.append_tokens(np.array(prompts, np.int32).squeeze())
        return self._next()

    def step(self, count: int) -> list[list[int]]:
        return [self._next() for _ in range(count)]

    def end(self) -> None:
        self._generator = None

    def _next(self) -> list[int]:
        assert self._generator is not None
        self._generator.generate_next_token()
        return [int(token) for token in self._generator.get_next_tokens()]


def _with_threads(folder: Path, overlay: Path, threads: int) -> Path:
    """The folder with another configuration: the number of threads, and an end token that does not occur."""
    config = json.loads((folder / CONFIG).read_text())
    config["model"]["decoder"]["session_options"]["intra_op_num_threads"] = threads
    config["model"]["eos_token_id"] = [config["model"]["vocab_size"] - 1]
    for path in folder.iterdir():
        if path.name != CONFIG:
            (overlay / path.name).symlink_to(path.resolve())
    (overlay / CONFIG).write_text(json.dumps(config))
    return overlay


if __name__ == "__main__":
    serve(OnnxRuntime)
