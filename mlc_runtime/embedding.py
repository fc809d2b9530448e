"""Text embeddings: prompts, pooling of hidden states and normalization (Reimers and Gurevych 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlc_errors import UsageError
from mlc_runtime.arrays import aligned_copy
from mlc_runtime.decoder import Decoder
from mlc_runtime.embedding_settings import EmbeddingSettings
from mlc_runtime.encoder import Encoder
from mlc_runtime.packed import groups
from mlc_runtime.tokenizer import Tokenizer

PROJECT = "project"


@dataclass(frozen=True)
class TextOptions:
    """A caller's options; None takes the model's. prompt: the text itself; prompt_name: name of a prompt of the model.

    truncate: truncate texts that are too long; otherwise they are refused.
    """

    prompt: str | None = None
    prompt_name: str | None = None
    pooling: str | None = None
    normalize: bool | None = None
    truncate: bool = False


class Embedder:
    """Computes text embeddings with a compiled model."""

    def __init__(self, model: Encoder | Decoder, tokenizer: Tokenizer, settings: EmbeddingSettings):
        self.model, self.tokenizer, self.settings = model, tokenizer, settings

    @property
    def max_tokens(self) -> int:
        """The maximum number of tokens of a text."""
        context = self.model.spec.context_window_size
        return min(context, self.settings.max_tokens or context)

    def embed(self, texts: Sequence[str], options: TextOptions) -> np.ndarray:
        """The embeddings of texts, float32 [len(texts), E]. Raises UsageError for a text of no or too many tokens."""
        settings = self.settings.chosen(options.pooling, options.normalize)
        before = settings.prompt(options.prompt, options.prompt_name)
        ids = [self._encode(i, before + text, options.truncate) for i, text in enumerate(texts)]
        pooled = np.empty((len(ids), self.model.hidden_size), np.float32)
        for group in groups(ids, self.model.spec):
            for i, hidden in zip(group, self.model.hidden_states([ids[i] for i in group]), strict=True):
                pooled[i] = settings.pooled(hidden)
        return settings.scaled(self._projected(pooled))

    def _encode(self, index: int, text: str, truncate: bool) -> list[int]:
        limit = self.max_tokens
        ids = self.tokenizer.encode_within(text, limit) if truncate else self.tokenizer.encode(text)
        if not ids:
            raise UsageError(f"text {index} is empty: it has no tokens")
        if len(ids) > limit:
            raise UsageError(
                f"text {index} has {len(ids)} tokens; expected at most {limit}",
                hint="shorten it, or choose to truncate",
            )
        return ids

    def _projected(self, pooled: np.ndarray) -> np.ndarray:
        """The results of the model's dense heads; ``pooled`` itself if it has none."""
        if PROJECT not in self.model.library.functions or not len(pooled):
            return pooled
        size = self.model.spec.max_batch_size
        parts = (pooled[first : first + size] for first in range(0, len(pooled), size))
        return np.concatenate([self.model.call(PROJECT, {"pooled": aligned_copy(part)})[0] for part in parts])
