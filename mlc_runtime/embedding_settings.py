"""Settings of text embeddings: pooling, normalization and prompts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mlc_errors import MLCError, UsageError

POOLINGS = ("mean", "cls", "last")


@dataclass(frozen=True)
class EmbeddingSettings:
    """A model's embedding settings.

    pooling: mean of the hidden states, first token (cls) or last token; None if the model's files do not say.
    normalize: whether embeddings are divided by their L2 norm. prompts: texts that are prepended, by name;
    default_prompt: the name of the one used by default. max_tokens: of a text, None for the context length.
    """

    pooling: str | None = None
    normalize: bool = True
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    max_tokens: int | None = None

    @staticmethod
    def from_metadata(data: Mapping[str, Any]) -> EmbeddingSettings:
        """Read ``embedding_metadata`` of mlc-chat-config.json. Raises MLCError if it is malformed."""
        settings = EmbeddingSettings(
            data.get("pooling_strategy"),
            data.get("normalize", True),
            data.get("prompts") or {},
            data.get("default_prompt_name"),
            data.get("max_seq_length"),
        )
        prompts, limit = settings.prompts, settings.max_tokens
        texts = isinstance(prompts, Mapping) and all(isinstance(text, str) for text in prompts.values())
        limited = limit is None or (type(limit) is int and limit > 0)
        if not (texts and limited and isinstance(settings.normalize, bool)):
            raise MLCError("embedding_metadata is malformed", hint="run gen_config again")
        return settings

    def chosen(self, pooling: str | None, normalize: bool | None) -> EmbeddingSettings:
        """The settings with a caller's choices. Raises UsageError for an unknown pooling, or if none is set."""
        pooling = self.pooling if pooling is None else pooling
        if pooling is None:
            raise UsageError(
                "the model's files do not say how its hidden states become one vector",
                hint=f"choose a pooling (--pooling): {', '.join(POOLINGS)}",
            )
        if pooling not in POOLINGS:
            raise UsageError(f"pooling is {pooling!r}; expected one of {', '.join(POOLINGS)}")
        return replace(self, pooling=pooling, normalize=self.normalize if normalize is None else normalize)

    def prompt(self, text: str | None, name: str | None) -> str:
        """The text to prepend: ``text``, else the prompt called ``name``, else the default prompt, else nothing."""
        if text is not None and name is not None:
            raise UsageError("a prompt and the name of one exclude each other")
        if text is not None:
            return text
        name = self.default_prompt if name is None else name
        if name is not None and name not in self.prompts:
            known = ", ".join(self.prompts) or "none"
            raise UsageError(f"the model has no prompt {name!r}; its prompts: {known}")
        return "" if name is None else self.prompts[name]

    def pooled(self, hidden: np.ndarray) -> np.ndarray:
        """Pool the hidden states [tokens, D] of a text to one vector, float32 [D]."""
        if self.pooling == "mean":
            return hidden.mean(axis=0, dtype=np.float64).astype(np.float32)
        return hidden[0] if self.pooling == "cls" else hidden[-1]

    def scaled(self, vectors: np.ndarray) -> np.ndarray:
        """The vectors [n, E], divided by their L2 norms if ``normalize`` is set; zero vectors stay as they are."""
        if not self.normalize:
            return vectors
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors / np.where(lengths > 0, lengths, 1)
