"""transformers on torch, in float32 without ``torch.compile``. FILES is a checkpoint's folder."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers

from peers.workers.serve import serve


class Transformers:
    """Greedy decoding by forward passes, without the overhead of ``generate``."""

    def __init__(self, folder: Path, threads: int):
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self._model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._cache: transformers.Cache | None = None
        self._tokens = torch.empty(0)
        self.version = f"transformers {transformers.__version__}"
        self.build = f"torch {torch.__version__}"

    def begin(self, prompts: list[list[int]]) -> list[int]:
        self._cache = transformers.DynamicCache(config=self._model.config)
        return self._forward(torch.tensor(prompts))

    def step(self, count: int) -> list[list[int]]:
        return [self._forward(self._tokens) for _ in range(count)]

    def end(self) -> None:
        self._cache = None

    def _forward(self, ids: torch.Tensor) -> list[int]:
        logits = self._model(ids, past_key_values=self._cache, use_cache=True, logits_to_keep=1).logits
        self._tokens = logits.argmax(-1)
        return self._tokens[:, 0].tolist()


if __name__ == "__main__":
    serve(Transformers)
