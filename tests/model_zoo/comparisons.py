"""Results of compiled models and of transformers, as pairs of arrays: (got, expected)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from transformers import PreTrainedModel

from mlc_runtime import LLM
from mlc_runtime.model_spec import RecurrentSpec
from tests.model_zoo.architecture_cases import VOCAB, Case
from tests.model_zoo.compiled import image_logits, logits

Pair = tuple[np.ndarray, np.ndarray]
"""Of one shape; ``got`` is valid until the next pair."""

RNG = np.random.default_rng(3)
A, B = (RNG.integers(3, VOCAB, n).tolist() for n in (29, 17))
PROMPT = 21  # tokens of A that are prefilled, in three chunks
TEXTS = [RNG.integers(3, VOCAB, n).tolist() for n in (29, 1, 17, 40)]
SOURCE, TARGET = RNG.integers(3, VOCAB, 29).tolist(), [0, *RNG.integers(3, VOCAB, 12).tolist()]
torch.set_num_threads(1)


def of_decoder(case: Case, model: PreTrainedModel, llm: LLM, steps: bool = True) -> Iterator[Pair]:
    """Logits of all positions, in several calls, and with images if the model takes them.

    steps: of a prompt and decode steps, too, and of two sequences.
    """
    a = logits(case, model, A)
    assert a.std() > 0.3 and np.abs(a[5:] - a[4:-1]).max() > 0.3  # far above the tolerance
    yield llm.logits(A), a
    if steps:
        yield from _steps(llm, a)
        yield from _batch(llm, a, logits(case, model, B))
    if case.image_tokens or case.grids:
        yield from _images(llm, case, model)


def _steps(llm: LLM, expected: np.ndarray) -> Iterator[Pair]:
    """A prompt in chunks, then decode token by token."""
    session = llm.new_session()
    yield session.prefill(A[:PROMPT]), expected[PROMPT - 1]
    for position in range(PROMPT, len(A)):
        yield session.decode_step(A[position]), expected[position]


def _batch(llm: LLM, a: np.ndarray, b: np.ndarray) -> Iterator[Pair]:
    """Two sequences of different lengths, prefilled in calls that they share, then decoded together."""
    model, pool = llm.model, llm.model.pool
    rows = [pool.add() for _ in range(2)]
    got = np.empty((2, VOCAB), np.float32)
    model.prefill([(rows[0], A[:PROMPT]), (rows[1], B[:5])], got)
    yield got, np.stack([a[PROMPT - 1], b[4]])
    step = model.batch
    step.assign(rows)
    for offset in range(len(A) - PROMPT):
        for i, (ids, start) in enumerate(((A, PROMPT), (B, 5))):
            step.token_pos[i] = pool.extend(rows[i], 1)
            step.input_ids[i] = ids[start + offset]
        step.forward()
        yield step.logits, np.stack([a[PROMPT + offset], b[5 + offset]])


def _images(llm: LLM, case: Case, model: PreTrainedModel) -> Iterator[Pair]:
    """Two images in a prompt, prefilled in chunks, then decode token by token; another image must change the result."""
    spec, rng = llm.model.spec.images, np.random.default_rng(4)
    grids = case.grids or [(1, case.image_tokens)] * 2
    inputs = [image_inputs(rng, spec.shape, grid) for grid in grids]
    expected = image_logits(case, model, A, [i["pixel_values"] for i in inputs])
    first, second = (llm.model.images.ids(i, grid) for i, grid in zip(inputs, grids, strict=True))
    ids = [*A[:4], *first, *A[4:6], *second, *A[6:]]
    yield llm.logits(ids), expected
    session = llm.new_session()
    begin = len(ids) - 5
    yield session.prefill(ids[:begin]), expected[begin - 1]
    for position in range(begin, len(ids)):
        yield session.decode_step(ids[position]), expected[position]
    swapped = [*A[:4], *second, *A[4:6], *first, A[6]]
    shared = 0 if any(isinstance(s, RecurrentSpec) for s in llm.model.spec.states) else 4
    assert session.prefill_to(swapped) == len(swapped) - shared
    assert np.abs(session.logits - expected[len(swapped) - 1]).max() > 0.01


def image_inputs(rng: np.random.Generator, shape: tuple[int, ...], grid: tuple[int, int]) -> dict[str, np.ndarray]:
    """Random inputs of ``image_embed``; for images of any size, a square of patches per token, with positions."""
    if shape[0] == 1:
        return {"pixel_values": rng.normal(size=shape).astype(np.float32)}
    rows, columns = grid
    side = math.isqrt(shape[1])
    square = [(i, j) for i in range(side) for j in range(side)]
    places = [[(side * r + i, side * c + j) for i, j in square] for r in range(rows) for c in range(columns)]
    pixels = rng.normal(size=(rows * columns, *shape[1:])).astype(np.float32)
    return {"pixel_values": pixels, "patch_pos": np.array(places, np.int32)}


def of_encoder(model: PreTrainedModel, llm: LLM) -> Iterator[Pair]:
    """Hidden states of texts of different lengths in shared calls, and of one text alone."""
    expected = [hidden_states(model, ids) for ids in TEXTS]
    assert np.abs(expected[0][5:] - expected[0][4:-1]).max() > 0.3  # far above the tolerance
    yield from zip(llm.compiled.hidden_states(TEXTS), expected, strict=True)
    yield llm.hidden_states(TEXTS[0]), expected[0]


def hidden_states(model: PreTrainedModel, ids: list[int]) -> np.ndarray:
    """Hidden states of one text without padding, float32 [len(ids), D]."""
    with torch.no_grad():
        return model(torch.tensor([ids])).last_hidden_state[0].numpy()


def of_encoder_decoder(model: PreTrainedModel, llm: LLM) -> Iterator[Pair]:
    """Logits after a source: of the first token, of steps, and of a chunk."""
    expected = target_logits(model, SOURCE, TARGET)
    assert expected.std() > 0.1
    assert np.abs(expected - target_logits(model, TEXTS[2], TARGET)).max() > 0.3  # the source matters
    session = llm.new_session()
    yield session.prefill([*SOURCE, TARGET[0]]), expected[0]
    for i in range(1, 6):
        yield session.decode_step(TARGET[i]), expected[i]
    yield session.prefill(TARGET[6:]), expected[-1]


def target_logits(model: PreTrainedModel, source: list[int], target: list[int]) -> np.ndarray:
    """Logits of the target tokens, float32 [len(target), V]."""
    with torch.no_grad():
        return model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([target])).logits[0].numpy()
