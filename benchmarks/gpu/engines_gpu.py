"""The engines that ``models.py`` measures: this project's runtime, and transformers on torch with CUDA."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from presets import Preset
from random_weights import RandomWeights

from mlc_compiler.driver import build_library
from mlc_compiler.target import Target
from mlc_runtime import Library
from mlc_runtime.decoder import Decoder
from mlc_runtime.model_spec import model_spec
from mlc_toolchain.library_metadata import model_metadata
from mlc_toolchain.source import PRESETS

WARM_UP = 4  # steps: the second one records a graph


class Engine(Protocol):
    """A model on a GPU. Both methods return seconds, and remove their sequences."""

    name: str

    def prefill(self, tokens: int) -> float:
        """Read one prompt into an empty cache and compute the logits after it."""
        ...

    def decode(self, batch: int, context: int, steps: int) -> float:
        """The time of one greedy step of ``batch`` sequences with ``context`` tokens each: the mean of ``steps``."""
        ...

    def close(self) -> None:
        """Free the GPU's memory."""
        ...


class CompiledEngine:
    """A preset with random weights, compiled and run by this project.

    install: called with the library before its first call.
    """

    def __init__(
        self, preset: Preset, scheme: str, target: Target, install: Callable[[Library], None] = lambda _: None
    ):
        self.name = f"mlc {scheme}"
        self._folder = tempfile.TemporaryDirectory(prefix="mlc-gpu-")
        path = Path(self._folder.name) / "lib.so"
        exported = preset.exported
        build_library(exported.mod, target, path, metadata=lambda mod: model_metadata(exported, scheme, mod))
        library = Library(path)
        install(library)
        self.model = Decoder(library, RandomWeights(model_spec(library.metadata).params))
        self._ids = np.random.default_rng(1).integers(0, self.model.spec.vocab_size, 1 << 16)
        self.tokens: list[int] = []

    def prefill(self, tokens: int) -> float:
        row, logits = self.model.pool.add(), np.empty((1, self.model.spec.vocab_size), np.float32)
        begin = time.perf_counter()
        self.model.prefill([(row, self._ids[:tokens].tolist())], logits)
        seconds = time.perf_counter() - begin
        self.model.pool.remove(row)
        _require_finite(logits)
        return seconds

    def decode(self, batch: int, context: int, steps: int) -> float:
        pool, step = self.model.pool, self.model.batch
        rows = [pool.add() for _ in range(batch)]
        logits = np.empty((1, self.model.spec.vocab_size), np.float32)
        for row in rows:
            self.model.prefill([(row, self._ids[row : row + context].tolist())], logits)
        step.assign(rows)
        self.tokens = self._ids[:batch].tolist()
        for _ in range(WARM_UP):
            self._step(rows)
        begin = time.perf_counter()
        for _ in range(steps):
            self._step(rows)
        seconds = (time.perf_counter() - begin) / steps
        _require_finite(step.logits)
        for row in rows:
            pool.remove(row)
        return seconds

    def _step(self, rows: list[int]) -> None:
        step = self.model.batch
        step.input_ids[: len(rows)] = self.tokens
        for element, row in enumerate(rows):
            step.token_pos[element] = self.model.pool.extend(row, 1)
        step.forward()
        self.tokens = step.sampler.sample([0.0] * len(rows))

    def close(self) -> None:
        self.model.close()
        self._folder.cleanup()


def _require_finite(logits: np.ndarray) -> None:
    assert np.isfinite(logits).all(), "logits overflow: the time means nothing"


class TorchEngine:
    """transformers' model of a preset in float16 on torch's current GPU, with random weights.

    compiled: by ``torch.compile`` with CUDA graphs and a cache of fixed size.
    """

    def __init__(self, model: str, compiled: bool, longest: int):
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        self.name = "torch f16, compiled" if compiled else "torch f16, eager"
        config = AutoConfig.from_pretrained(PRESETS / f"{model}.json")
        with torch.device("cuda"):
            self._model = AutoModelForCausalLM.from_config(config, dtype=torch.float16).eval()
        self._torch, self._longest, self._is_compiled = torch, longest, compiled
        self._forward: Any = self._model
        if compiled:
            self._forward = torch.compile(self._model, mode="reduce-overhead", fullgraph=True)
        self._vocabulary = config.vocab_size

    def prefill(self, tokens: int) -> float:
        ids = self._ids(1, tokens)
        return self._timed(lambda: self._call(self._model, ids, self._cache(1), 0))

    def decode(self, batch: int, context: int, steps: int) -> float:
        cache = self._cache(batch)
        ids = self._call(self._model, self._ids(batch, context), cache, 0)
        for position in range(context, context + WARM_UP):
            ids = self._call(self._forward, ids, cache, position)

        def run() -> None:
            token = ids
            for position in range(context + WARM_UP, context + WARM_UP + steps):
                token = self._call(self._forward, token, cache, position)

        return self._timed(run) / steps

    def close(self) -> None:
        del self._model, self._forward
        self._torch.cuda.empty_cache()

    def _cache(self, batch: int) -> Any:
        from transformers import DynamicCache, StaticCache

        if not self._is_compiled:
            return DynamicCache(config=self._model.config)
        return StaticCache(config=self._model.config, max_cache_len=self._longest)

    def _ids(self, batch: int, tokens: int) -> Any:
        return self._torch.randint(0, self._vocabulary, (batch, tokens), device="cuda")

    def _call(self, forward: Any, ids: Any, cache: Any, position: int) -> Any:
        """The most likely next tokens, [batch, 1]."""
        torch = self._torch
        places = torch.arange(position, position + ids.shape[1], device="cuda")
        with torch.inference_mode():
            out = forward(ids, past_key_values=cache, cache_position=places, use_cache=True, logits_to_keep=1)
            return out.logits[:, -1:].argmax(-1).clone()

    def _timed(self, work: Callable[[], object]) -> float:
        self._torch.cuda.synchronize()
        begin = time.perf_counter()
        work()
        self._torch.cuda.synchronize()
        return time.perf_counter() - begin
