"""Base class for llama.cpp and its forks: batches of tokens through their C interface."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np

from peers.shapes import CONTEXT, ROOM


class BatchArrays:
    """The arrays of a ``llama_batch`` of up to ``capacity`` tokens."""

    def __init__(self, capacity: int):
        self.token, self.position, self.sequence = (np.zeros(capacity, np.int32) for _ in range(3))
        self.is_output = np.zeros(capacity, np.int8)
        self._one = np.ones(capacity, np.int32)  # number of sequences of a token
        self._places = self.sequence.ctypes.data + 4 * np.arange(capacity, dtype=np.uint64)

    def fill(self, rows: list[list[int]], past: int) -> None:
        """Fill in rows of equal length after ``past`` tokens of each sequence; only the last of each has logits."""
        length, count = len(rows[0]), len(rows) * len(rows[0])
        self.token[:count] = np.ravel(rows)
        self.position[:count] = np.tile(np.arange(past, past + length), len(rows))
        self.sequence[:count] = np.repeat(np.arange(len(rows)), length)
        self.is_output[:count] = 0
        self.is_output[length - 1 : count : length] = 1

    def of(self, struct: Any, count: int) -> Any:
        """The engine's own struct over the first ``count`` tokens."""
        integers, bytes_ = ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.c_int8)
        return struct(
            n_tokens=count,
            token=self.token.ctypes.data_as(integers),
            pos=self.position.ctypes.data_as(integers),
            n_seq_id=self._one.ctypes.data_as(integers),
            seq_id=self._places.ctypes.data_as(ctypes.POINTER(integers)),
            logits=self.is_output.ctypes.data_as(bytes_),
        )


class GgufEngine:
    """An engine with a GGUF file. A context is reused while the number of sequences and their length do not change.

    api: the ctypes module. clear: removes all tokens of a context.
    """

    version: str
    build: str

    def __init__(self, api: Any, path: Path, threads: int, model_params: Any):
        self._api, self._threads = api, threads
        api.llama_backend_init()
        self._model = api.llama_model_load_from_file(str(path).encode(), model_params)
        if not self._model:
            raise RuntimeError(f"no model in {path}")
        self._vocabulary = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self._model))
        self._context: Any = None
        self._sizes = 0, 0
        self._tokens: list[int] = []
        self._past = 0

    def clear(self) -> None:
        """Remove all tokens of the context."""
        raise NotImplementedError

    def context_params(self) -> Any:
        """The engine's settings, except sizes and threads."""
        return self._api.llama_context_default_params()

    def begin(self, prompts: list[list[int]]) -> list[int]:
        self._open(len(prompts), len(prompts[0]))
        self.clear()
        self._past = 0
        self._tokens = self._decode(prompts)
        return self._tokens

    def step(self, count: int) -> list[list[int]]:
        steps = []
        for _ in range(count):
            self._tokens = self._decode([[token] for token in self._tokens])
            steps.append(self._tokens)
        return steps

    def end(self) -> None:
        self.clear()

    def _open(self, batch: int, tokens: int) -> None:
        """A context for ``batch`` sequences; one sequence has room for the longest prompt."""
        length = CONTEXT if batch == 1 else -(-(tokens + ROOM) // 256) * 256
        if self._sizes == (batch, length):
            return
        if self._context:
            self._api.llama_free(self._context)
        params = self.context_params()
        params.n_ctx = params.n_batch = batch * length
        params.n_seq_max, params.n_threads, params.n_threads_batch = batch, self._threads, self._threads
        self._context = self._api.llama_init_from_model(self._model, params)
        if not self._context:
            raise RuntimeError(f"no context for {batch} sequences of {length} tokens")
        self._arrays = BatchArrays(batch * length)
        self._sizes = batch, length

    def _decode(self, rows: list[list[int]]) -> list[int]:
        """Append tokens to each sequence; returns the most likely next tokens."""
        self._arrays.fill(rows, self._past)
        batch = self._arrays.of(self._api.llama_batch, sum(map(len, rows)))
        if failed := self._api.llama_decode(self._context, batch):
            raise RuntimeError(f"llama_decode gives {failed}")
        self._past += len(rows[0])
        return [self._most_likely((row + 1) * len(rows[0]) - 1) for row in range(len(rows))]

    def _most_likely(self, place: int) -> int:
        logits = self._api.llama_get_logits_ith(self._context, place)
        return int(np.ctypeslib.as_array(logits, (self._vocabulary,)).argmax())
