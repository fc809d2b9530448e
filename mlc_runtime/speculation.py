"""Speculative decoding: draft tokens are proposed, and the model verifies them in one call (Leviathan et al. 2023).

A draft token is accepted if the model samples the same token with the random number of that position. The text is
therefore the same with and without drafts, for sampled answers too. Draft tokens are verified as a batch of single
tokens: logits are bitwise equal to single steps' if the kernels' order of summation does not depend on the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from mlc_errors import UsageError
from mlc_runtime.decoder import Decoder
from mlc_runtime.penalties import NO_PENALTIES, TextTokens
from mlc_runtime.sampling import Sampling
from mlc_runtime.session import Session

LONGEST, SHORTEST = 4, 2  # tokens that must repeat before their continuation is proposed
NUM_DRAFT = 5
FEW = 3  # new tokens that are computed one by one
NO_TOKENS = TextTokens((), {})


class Proposer(Protocol):
    """Proposes draft tokens."""

    def propose(self, ids: Sequence[int], uniforms: Sequence[float]) -> list[int]:
        """Propose up to ``len(uniforms)`` tokens to follow ``ids``; uniforms: the model will sample with them."""

    def close(self) -> None:
        """Free the proposer's resources."""


class PromptLookup:
    """Prompt lookup: proposes the continuation of an earlier occurrence of the last tokens (Saxena 2023)."""

    def __init__(self) -> None:
        self._ends: dict[tuple[int, ...], int] = {}  # n-grams, and the position after their last occurrence
        self._indexed = 0

    def propose(self, ids: Sequence[int], uniforms: Sequence[float]) -> list[int]:
        if len(ids) <= self._indexed:  # another text, or one that was truncated
            self._ends, self._indexed = {}, 0
        lengths = [n for n in range(LONGEST, SHORTEST - 1, -1) if n <= len(ids)]
        for end in range(self._indexed, len(ids)):
            self._ends |= {tuple(ids[end - n : end]): end for n in lengths if n <= end}
        self._indexed = len(ids)
        begin = next((self._ends[run] for run in (tuple(ids[-n:]) for n in lengths) if run in self._ends), None)
        if begin is None:
            return []
        text = list(ids)
        for place in range(begin, begin + len(uniforms)):  # the proposed tokens may be copied in turn
            text.append(text[place])
        return text[len(ids) :]

    def close(self) -> None:
        """Nothing to free."""


class DraftModel:
    """A draft model: proposes what a smaller model with the same vocabulary samples, with the same random numbers."""

    def __init__(self, model: Decoder, sampling: Sampling):
        self._session = Session.empty(model)
        self._sampling = replace(sampling, penalties=NO_PENALTIES, logit_bias={}, top_logprobs=None)

    def propose(self, ids: Sequence[int], uniforms: Sequence[float]) -> list[int]:
        room = self._session.max_tokens - len(ids) + 1
        if room < 1 or not uniforms or not self._follow(ids):
            return []
        guesses: list[int] = []
        for uniform in uniforms[:room]:
            if guesses:
                self._session.append(guesses[-1])
            guesses.append(self._session.draw(self._sampling, NO_TOKENS, uniform).token)
        return guesses

    def close(self) -> None:
        self._session.close()

    def _follow(self, ids: Sequence[int]) -> bool:
        """Extend the session to ``ids``, a few new tokens by single steps; False if the model lacks a token."""
        session = self._session
        common = session.reusable(ids)
        if max(ids[common:]) >= session.model.spec.vocab_size:
            return False
        if len(ids) - common > FEW:
            session.prefill_to(ids)
            return True
        session.truncate(common)
        for token in ids[common:]:
            session.append(token)
        return True


def check_speculation(model: Decoder, num_draft: int, draft: Decoder | None) -> None:
    """Raises UsageError if the model cannot verify ``num_draft`` draft tokens, or ``draft`` cannot propose them."""
    largest = model.spec.max_batch_size - 1
    if not 1 <= num_draft <= largest:
        raise UsageError(
            f"num_draft is {num_draft}; expected 1 to {largest}, as the library is compiled",
            hint="a larger max_batch_size allows more",
        )
    if not model.pool.can_fork:
        raise UsageError(
            f"models with an encoder ({model.spec.model_type}) take no guesses", hint="leave num_draft out"
        )
    if draft is not None and not (draft.pool.can_roll_back and draft.pool.can_fork):
        raise UsageError(
            f"the draft model ({draft.spec.model_type}) has a state that cannot be cut back to the right guesses",
            hint="take a draft model with attention in all layers",
        )
