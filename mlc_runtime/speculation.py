"""Guesses of the next tokens, which the model then verifies in one call (Leviathan et al. 2023).

A guess is accepted where the model's own draw, with the random number of its place, is that token. A text is therefore
the same with and without guesses, for sampled answers too. Guesses are computed as a batch of single tokens is: the
rounding of sums is that of a token alone, wherever kernels add up a row in the same order for any number of rows.
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

LONGEST, SHORTEST = 4, 2  # tokens that a text has to repeat before its continuation is guessed
NUM_DRAFT = 5
FEW = 3  # new tokens that are computed one by one
NO_TOKENS = TextTokens((), {})


class Proposer(Protocol):
    """A way to guess."""

    def propose(self, ids: Sequence[int], uniforms: Sequence[float]) -> list[int]:
        """Up to ``len(uniforms)`` tokens that may follow ``ids``; uniforms: with which the model will draw them."""

    def close(self) -> None:
        """Free what the guesses needed."""


class PromptLookup:
    """Guesses what followed the last tokens where they were in the text before (Saxena 2023)."""

    def __init__(self) -> None:
        self._ends: dict[tuple[int, ...], int] = {}  # runs of tokens, and the place after the last one of each
        self._indexed = 0

    def propose(self, ids: Sequence[int], uniforms: Sequence[float]) -> list[int]:
        if len(ids) <= self._indexed:  # another text, or one of which tokens were forgotten
            self._ends, self._indexed = {}, 0
        lengths = [n for n in range(LONGEST, SHORTEST - 1, -1) if n <= len(ids)]
        for end in range(self._indexed, len(ids)):
            self._ends |= {tuple(ids[end - n : end]): end for n in lengths if n <= end}
        self._indexed = len(ids)
        begin = next((self._ends[run] for run in (tuple(ids[-n:]) for n in lengths) if run in self._ends), None)
        if begin is None:
            return []
        text = list(ids)
        for place in range(begin, begin + len(uniforms)):  # what is guessed continues the text
            text.append(text[place])
        return text[len(ids) :]

    def close(self) -> None:
        """Nothing to free."""


class DraftModel:
    """Guesses what another model of the same tokens draws, with the same settings and random numbers."""

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
        """Make ``ids`` the session's content, a few new tokens in a step each; False where it has no such token."""
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
    """Raises UsageError where the model cannot verify ``num_draft`` guesses, or ``draft`` cannot make them."""
    largest = model.spec.max_batch_size - 1
    if not 1 <= num_draft <= largest:
        raise UsageError(
            f"num_draft is {num_draft}; expected 1 to {largest}, as the library is compiled",
            hint="a larger max_batch_size allows more",
        )
    for name, checked in (("the model", model), ("the draft model", draft)):
        if checked is not None and not (checked.pool.can_roll_back and checked.pool.can_fork):
            raise UsageError(
                f"{name} ({checked.spec.model_type}) has a state that cannot be cut back to the guesses that are right",
                hint="generate without num_draft",
            )
