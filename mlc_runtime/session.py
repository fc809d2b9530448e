"""One sequence of tokens in its own KV cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlc_errors import UsageError
from mlc_runtime.model import CompiledModel, DecodeStep


class Session:
    """A sequence that is extended by prompts and by single tokens, and cut back.

    ``token_ids`` are the tokens in the cache. ``logits``, float32 [V], are those after the last token; the array is
    overwritten by the next call.
    """

    def __init__(self, model: CompiledModel, max_tokens: int | None = None):
        self.model = model
        self.cache = model.new_cache(1, max_tokens)
        self.step = DecodeStep(model, self.cache, [0])
        self.token_ids: list[int] = []

    @property
    def logits(self) -> np.ndarray:
        return self.step.logits[0]

    @property
    def max_tokens(self) -> int:
        return self.cache.max_tokens

    def prefill(self, ids: Sequence[int]) -> np.ndarray:
        """Append a prompt of any length; returns ``logits``. Raises ResourceError when the context is full."""
        try:
            self.model.prefill(self.cache, 0, ids, self.logits)
        except BaseException:
            self.cache.truncate(0, len(self.token_ids))
            raise
        self.token_ids.extend(map(int, ids))
        return self.logits

    def decode_step(self, token: int) -> np.ndarray:
        """Append one token; returns ``logits``. Raises ResourceError when the context is full."""
        if not 0 <= token < self.model.spec.vocab_size:
            raise UsageError(f"token id is {token}; expected 0 to {self.model.spec.vocab_size - 1}")
        step = self.step
        step.token_pos[0] = self.cache.extend(0, 1)
        step.input_ids[0] = token
        step.forward()
        self.token_ids.append(token)
        return step.logits[0]

    def sample(self, uniform: float = 0.0) -> int:
        """A token drawn from ``logits`` with ``step.temperature`` and ``step.top_p``; uniform in [0, 1)."""
        step = self.step
        step.uniform[0] = uniform
        step.sample()
        return int(step.token[0])

    def prefill_to(self, ids: Sequence[int]) -> int:
        """Make `ids` the content; only what differs from the present content is computed. Returns that number.

        Raises, and changes nothing, when `ids` do not fit.
        """
        if len(ids) > self.max_tokens:
            raise UsageError(
                f"the prompt has {len(ids)} tokens; the context holds {self.max_tokens}",
                hint="shorten the prompt, or compile with a larger context_window_size",
            )
        ids = self.model.check_ids(ids).tolist()
        common = _common_prefix(self.token_ids, ids[:-1])
        self.truncate(common)
        self.prefill(ids[common:])
        return len(ids) - common

    def truncate(self, length: int) -> None:
        """Forget the tokens from position `length` on. ``logits`` stay those of the last computed token."""
        del self.token_ids[length:]
        self.cache.truncate(0, length)

    def reset(self) -> None:
        self.truncate(0)


def _common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
