"""A compiled encoder: the hidden states of texts, several in a call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from mlc_errors import UsageError
from mlc_runtime.arrays import aligned_empty
from mlc_runtime.model import CompiledModel
from mlc_runtime.model_spec import PagedKVSpec
from mlc_runtime.packed import Packed, groups
from mlc_runtime.pool import SequencePool

FUNCTION = "encode"


class Encoder(CompiledModel):
    """A model with the function ``encode``. Attention is bidirectional, so that a text has to be in one call."""

    @cached_property
    def pool(self) -> SequencePool:
        """The sequences of one call."""
        spec = self.spec
        page = max((s.page_size for s in spec.states if isinstance(s, PagedKVSpec)), default=1)
        tokens = spec.prefill_chunk_size + spec.max_batch_size * page
        return SequencePool(
            spec.states, spec.context_window_size, tokens, spec.max_batch_size, rollback=0, memory=self.memory
        )

    def hidden_states(
        self, texts: Sequence[Sequence[int]], token_types: Sequence[Sequence[int]] | None = None
    ) -> list[np.ndarray]:
        """The last hidden state of every token, float32 [tokens, D] for each text.

        token_types: the type of each token, default 0. Raises UsageError for token types if the model has none and for
        ids outside of the vocabulary, ResourceError for a text that is longer than the context.
        """
        self._check_types(texts, token_types)
        results: list[np.ndarray] = []
        for group in groups(texts, self.spec):
            types = None if token_types is None else np.concatenate([token_types[i] for i in group]).astype(np.int32)
            results += self._call([texts[i] for i in group], types)
        return results

    def _call(self, texts: Sequence[Sequence[int]], types: np.ndarray | None) -> list[np.ndarray]:
        with self.pool.lent(len(texts)) as rows:
            packed = Packed.of(self, list(zip(rows, texts, strict=True)))
            inputs = {"input_ids": packed.ids, "token_seq": packed.token_seq, "token_pos": packed.token_pos}
            inputs["lengths"] = np.array(self.pool.lengths, np.int32)
            if self._has_types:
                inputs["token_types"] = np.zeros_like(packed.ids) if types is None else types
            hidden = aligned_empty((len(packed.ids), self.hidden_size), np.dtype(np.float32))
            self.bind(FUNCTION, inputs, [hidden])()
        return np.split(hidden, packed.lasts[:-1] + 1)

    @property
    def hidden_size(self) -> int:
        return int(self.library[FUNCTION].spec.outputs[0].shape[-1])

    @property
    def _has_types(self) -> bool:
        return any(t.name == "token_types" for t in self.library[FUNCTION].spec.inputs)

    def _check_types(self, texts: Sequence[Sequence[int]], token_types: Sequence[Sequence[int]] | None) -> None:
        if token_types is None:
            return
        if not self._has_types:
            raise UsageError(f"{self.spec.model_type} models have no token types", hint="leave them out")
        if list(map(len, token_types)) != list(map(len, texts)):
            raise UsageError("the numbers of token types and of tokens differ; expected one for each token")
