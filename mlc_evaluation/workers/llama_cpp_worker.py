"""A program for an interpreter with llama-cpp-python: times prefill and decode of a GGUF file, of one sequence.

    python llama_cpp_worker.py REQUEST

REQUEST is a JSON object with ``file``, ``threads``, ``prompt_lengths``, ``depths``, ``generate`` and ``repeat``. The
last line of its output is an object with ``version`` and the seconds of each prompt and each step: ``prefill`` and
``decode``, a list for each length and each depth. Nothing of this project is imported.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Sequence
from typing import Any

import llama_cpp

WARM_UP = 2  # steps before the first one that is timed


class OneSequence:
    """One sequence of a model, and its greedy sampler."""

    def __init__(self, file: str, threads: int, length: int):
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(file.encode(), llama_cpp.llama_model_default_params())
        if not self._model:
            raise SystemExit(f"llama.cpp reads no model from {file}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = params.n_batch = -(-length // 256) * 256
        params.n_threads = params.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        if not self._context:
            raise SystemExit(f"llama.cpp has no context for {length} tokens")
        self._sampler = llama_cpp.llama_sampler_init_greedy()
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))

    def keep(self, count: int) -> None:
        """Forget all but the first ``count`` tokens."""
        llama_cpp.llama_memory_seq_rm(llama_cpp.llama_get_memory(self._context), 0, count, -1)

    def append(self, tokens: Sequence[int]) -> int:
        """Append tokens; returns the most likely one after them."""
        array = (llama_cpp.llama_token * len(tokens))(*tokens)
        failed = llama_cpp.llama_decode(self._context, llama_cpp.llama_batch_get_one(array, len(tokens)))
        if failed:
            raise SystemExit(f"llama_decode gives {failed} for {len(tokens)} tokens")
        return int(llama_cpp.llama_sampler_sample(self._sampler, self._context, -1))


def measured(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request."""
    longest = max(*request["prompt_lengths"], max(request["depths"]) + request["generate"])
    sequence = OneSequence(request["file"], request["threads"], longest)
    choose = random.Random(0)
    ids = [choose.randrange(sequence.vocabulary) for _ in range(longest)]
    repeat, generate = request["repeat"], request["generate"]
    return {
        "version": llama_cpp.__version__,
        "prefill": [_prefill(sequence, ids[:count], repeat) for count in request["prompt_lengths"]],
        "decode": [_decode(sequence, ids, depth, generate, repeat) for depth in request["depths"]],
    }


def _prefill(sequence: OneSequence, ids: Sequence[int], repeat: int) -> list[float]:
    """Seconds of ``repeat`` prompts, after one that is not counted."""
    seconds = []
    for _ in range(repeat + 1):
        sequence.keep(0)
        begin = time.perf_counter()
        sequence.append(ids)
        seconds.append(time.perf_counter() - begin)
    return seconds[1:]


def _decode(sequence: OneSequence, ids: Sequence[int], depth: int, generate: int, repeat: int) -> list[float]:
    """Seconds of steps, ``repeat`` times ``generate``, each time from ``depth`` tokens on."""
    sequence.keep(0)
    if depth:
        sequence.append(ids[:depth])
    seconds: list[float] = []
    for _ in range(repeat):
        sequence.keep(depth)
        token, steps = ids[0], []
        for _ in range(generate):
            begin = time.perf_counter()
            token = sequence.append([token])
            steps.append(time.perf_counter() - begin)
        seconds += steps[min(WARM_UP, generate - 1) :]
    return seconds


if __name__ == "__main__":
    print(json.dumps(measured(json.loads(sys.argv[1]))))
