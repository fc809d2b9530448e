"""Draft heads, which predict tokens from the model's hidden states.

EAGLE heads (Li et al. 2024) and multi-token prediction (MTP, DeepSeek-AI 2024) are layers that use the model's output
head for their logits; MTP uses the model's embeddings, too. Medusa heads (Cai et al. 2024) have their own logits. Draft
tokens are sampled by the model's library, with the answer's settings and random numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mlc_errors import UsageError
from mlc_runtime.decoder import HIDDEN_STATES
from mlc_runtime.dtypes import dtype_of
from mlc_runtime.hidden_states import LOGITS, STEP, HiddenSessions, check_hidden_states
from mlc_runtime.metadata import TensorSpec
from mlc_runtime.model import CompiledModel
from mlc_runtime.penalties import NO_PENALTIES, TextTokens
from mlc_runtime.sampler import Sampler
from mlc_runtime.sampling import Sampling
from mlc_runtime.speculation import Proposer

FUSE, FUSE_OWN = "fuse_embed_hidden_states", "fuse_embed_own_hidden_states"
PREFILL, EMBED = "prefill", "embed"


def is_draft_head(model: CompiledModel) -> bool:
    """Whether the model is a draft head: it predicts tokens from another model's hidden states."""
    functions = model.library.functions
    return FUSE in functions or (LOGITS in functions and PREFILL not in functions)


def head_proposer(head: CompiledModel, sessions: HiddenSessions, sampling: Sampling) -> Proposer:
    """The proposer of a draft head for streams of ``sessions``. Raises UsageError if sizes differ from the model's."""
    check_hidden_states(sessions.model)
    kind, function = (LayerHead, FUSE) if FUSE in head.library.functions else (MedusaHeads, LOGITS)
    vocabulary, size = head.spec.vocab_size, int(_hidden_states(head, function).shape[-1])
    expected = (sessions.model.spec.vocab_size, sessions.model.hidden_size)
    if (vocabulary, size) != expected:
        raise UsageError(
            f"the draft head is for {vocabulary} tokens and hidden states of {size} elements; the model has "
            f"{expected[0]} and {expected[1]}",
            hint="take the head that was trained for this model",
        )
    return kind(head, sessions, sampling, _hidden_states(head, function).dtype)


def _hidden_states(head: CompiledModel, function: str) -> TensorSpec:
    """The input of a function that takes the model's hidden states."""
    inputs = head.library[function].spec.inputs
    return next(t for t in inputs if isinstance(t, TensorSpec) and t.name == "hidden_states")


class _Head:
    """Base class of draft heads: samples from logits with the answer's settings, without penalties and logit biases.

    dtype: of the hidden states that the head takes.
    """

    def __init__(self, head: CompiledModel, sessions: HiddenSessions, sampling: Sampling, dtype: str):
        self._head, self._sessions, self._model = head, sessions, sessions.model
        self._dtype = dtype_of(dtype)
        self._logits = self._model.memory.mirrored((1, self._model.spec.vocab_size), np.dtype(np.float32))
        self._sampler = Sampler(self._model, self._logits)
        self._sampler.assign([replace(sampling, penalties=NO_PENALTIES, logit_bias={}, top_logprobs=None)])

    def _draw(self, uniform: float) -> int:
        return self._sampler.draw([TextTokens((), {})], [uniform])[0].token

    def _new_states(self) -> tuple[int, np.ndarray]:
        assert self._sessions.session is not None
        return self._sessions.session.take_states()


class LayerHead(_Head):
    """EAGLE and MTP: layers that map a token's embedding and the preceding hidden state to the next hidden state.

    The head's sequence has a position for each token of the text but the first.
    """

    def __init__(self, head: CompiledModel, sessions: HiddenSessions, sampling: Sampling, dtype: str):
        super().__init__(head, sessions, sampling, dtype)
        self._row = head.pool.add()
        self._embedder = head if EMBED in head.library.functions else self._model
        self._fuse_own = FUSE_OWN if FUSE_OWN in head.library.functions else FUSE
        self._chunk = min(head.spec.prefill_chunk_size, self._embedder.spec.prefill_chunk_size)

    def propose(self, ids: Sequence[int], uniforms: Sequence[float]) -> list[int]:
        room = self._head.pool.limit(self._row) - len(ids) + 1
        if room < 0 or not uniforms:
            return []
        with self._model.lock.held(), self._head.lock.held():
            begin, states = self._new_states()
            self._head.pool.truncate(self._row, begin)
            state = self._follow(ids[begin + 1 :], states, FUSE)
            guesses = [self._guess(state, uniforms[0])]
            for uniform in uniforms[1 : room + 1]:
                state = self._follow(guesses[-1:], state, self._fuse_own)
                guesses.append(self._guess(state, uniform))
            self._head.pool.truncate(self._row, len(ids) - 1)
        return guesses

    def close(self) -> None:
        self._head.pool.remove(self._row)

    def _guess(self, state: np.ndarray, uniform: float) -> int:
        self._model.bind(LOGITS, {"hidden_states": state}, [self._logits])()
        return self._draw(uniform)

    def _follow(self, ids: Sequence[int], states: np.ndarray, fuse: str) -> np.ndarray:
        """Extend the head's sequence by tokens and the states that precede them; returns the last new state, [1, D].

        fuse: the function that joins them.
        """
        for first in range(0, len(ids), self._chunk):
            chunk = slice(first, min(first + self._chunk, len(ids)))
            last = self._extend(np.array(ids[chunk], np.int32), states[chunk], fuse)
        return last

    def _extend(self, ids: np.ndarray, states: np.ndarray, fuse: str) -> np.ndarray:
        head, count = self._head, len(ids)
        begin = head.pool.extend(self._row, count)
        (embedding,) = self._embedder.call(EMBED, {"input_ids": ids})
        joined = {"input_embed": embedding.astype(self._dtype), "hidden_states": states.astype(self._dtype)}
        (fused,) = head.call(fuse, joined)
        places = np.arange(begin, begin + count, dtype=np.int32)
        inputs = {"token_seq": np.full(count, self._row, np.int32), "token_pos": places}
        name = HIDDEN_STATES if count > 1 else STEP
        (hidden,) = head.call(name, {"hidden_states": fused[None], **inputs})
        return hidden.reshape(count, -1)[-1:].astype(np.float32)


class MedusaHeads(_Head):
    """Medusa: head i predicts the token i + 2 positions after the hidden state's token, i = 0, 1, …"""

    def propose(self, ids: Sequence[int], uniforms: Sequence[float]) -> list[int]:
        if not uniforms:
            return []
        with self._model.lock.held(), self._head.lock.held():
            _, states = self._new_states()
            results = self._head.call(LOGITS, {"hidden_states": states[-1:].astype(self._dtype)})
            return [self._guess(logits, uniform) for logits, uniform in zip(results, uniforms, strict=False)]

    def close(self) -> None:
        """Nothing to free."""

    def _guess(self, logits: np.ndarray, uniform: float) -> int:
        self._logits[...] = logits
        self._model.memory.send(self._logits)
        return self._draw(uniform)
