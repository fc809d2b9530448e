"""Write log-probabilities of llama.cpp on windows of token ids; runs in llama.cpp's environment.

python -m peers.log_probabilities MODEL.gguf WINDOWS.npy FIRST OUTPUT.npy [THREADS]

WINDOWS: int32 [windows, N]. OUTPUT: float32 [windows, N - 1 - FIRST, V], for the token after each of the positions
FIRST to N - 2. Each window is read with an empty cache in one batch, as in llama.cpp's perplexity tool.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

from peers.llama_batch import decode


class Windows:
    """A model with a context for one window of ``size`` tokens."""

    def __init__(self, file: Path, size: int, threads: int):
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        self._model = llama_cpp.llama_model_load_from_file(str(file).encode(), params)
        options = llama_cpp.llama_context_default_params()
        options.n_ctx = options.n_batch = options.n_ubatch = size
        options.n_threads = options.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, options)
        if not self._context:
            raise SystemExit(f"llama.cpp has no context of {size} tokens for {file}")
        self.vocabulary: int = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))

    def log_probabilities(self, ids: np.ndarray, first: int) -> np.ndarray:
        """Log-probabilities of the tokens after ``ids[first:]``, float64 [len(ids) - first, V]."""
        decode(self._context, ids.tolist(), first)
        rows = [self._logits(position) for position in range(first, len(ids))]
        return log_softmax(np.stack(rows).astype(np.float64))

    def _logits(self, position: int) -> np.ndarray:
        pointer: Any = llama_cpp.llama_get_logits_ith(self._context, position)
        return np.ctypeslib.as_array(pointer, (self.vocabulary,)).copy()


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Log-softmax over the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def main(file: Path, windows: np.ndarray, first: int, output: Path, threads: int = 2) -> None:
    model = Windows(file, windows.shape[1], threads)
    shape = (len(windows), windows.shape[1] - 1 - first, model.vocabulary)
    made = np.lib.format.open_memmap(output, "w+", np.float32, shape)
    for place, ids in zip(made, windows, strict=True):
        place[:] = model.log_probabilities(ids[:-1], first)
    made.flush()


if __name__ == "__main__":
    given = sys.argv[5:] and int(sys.argv[5])
    main(Path(sys.argv[1]), np.load(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), given or 2)
