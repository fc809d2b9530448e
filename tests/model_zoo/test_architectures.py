"""Every architecture, from checkpoint to compiled logits, against transformers in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from mlc_runtime import LLM
from tests.model_zoo.architecture_cases import CASES, VOCAB, Case
from tests.model_zoo.compiled import build, image_logits, logits, random_model, with_decoded_weights

TOLERANCE, QUANTIZED_TOLERANCE = 1e-4, 1.5e-2
RNG = np.random.default_rng(3)
A, B = (RNG.integers(3, VOCAB, n).tolist() for n in (29, 17))
PROMPT = 21  # tokens of A that are prefilled, in three chunks
torch.set_num_threads(1)


def close(got: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Within ``tolerance`` of the greatest logit."""
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_logits_equal_those_of_transformers(case: Case, tmp_path: Path) -> None:
    model = random_model(case)
    a, b = logits(case, model, A), logits(case, model, B)
    assert a.std() > 0.3 and np.abs(a[5:] - a[4:-1]).max() > 0.3  # far above the tolerance
    with build(case, model, tmp_path) as llm:
        close(llm.logits(A), a, TOLERANCE)
        check_steps(llm, a)
        check_batch(llm, a, b)
        if case.image_tokens or case.grids:
            check_image(llm, case, model)


def check_steps(llm: LLM, expected: np.ndarray) -> None:
    """A prompt in chunks, then token by token."""
    session = llm.new_session()
    close(session.prefill(A[:PROMPT]), expected[PROMPT - 1], TOLERANCE)
    for position in range(PROMPT, len(A)):
        close(session.decode_step(A[position]), expected[position], TOLERANCE)


def check_batch(llm: LLM, a: np.ndarray, b: np.ndarray) -> None:
    """Two sequences of different lengths, prefilled in calls that they share, then decoded together."""
    model, pool = llm.model, llm.model.pool
    rows = [pool.add() for _ in range(2)]
    got = np.empty((2, VOCAB), np.float32)
    model.prefill([(rows[0], A[:PROMPT]), (rows[1], B[:5])], got)
    close(got, np.stack([a[PROMPT - 1], b[4]]), TOLERANCE)
    step = model.batch
    step.assign(rows)
    for offset in range(len(A) - PROMPT):
        for i, (ids, start) in enumerate(((A, PROMPT), (B, 5))):
            step.token_pos[i] = pool.extend(rows[i], 1)
            step.input_ids[i] = ids[start + offset]
        step.forward()
        close(step.logits, np.stack([a[PROMPT + offset], b[5 + offset]]), TOLERANCE)


def check_image(llm: LLM, case: Case, model: PreTrainedModel) -> None:
    """Two images in a prompt, in chunks, then token by token; another image has another result."""
    spec, rng = llm.model.spec.images, np.random.default_rng(4)
    grids = case.grids or [(1, case.image_tokens)] * 2
    inputs = [image_inputs(rng, spec.shape, grid) for grid in grids]
    expected = image_logits(case, model, A, [i["pixel_values"] for i in inputs])
    first, second = (llm.model.images.ids(i, grid) for i, grid in zip(inputs, grids, strict=True))
    ids = [*A[:4], *first, *A[4:6], *second, *A[6:]]
    close(llm.logits(ids), expected, TOLERANCE)
    session = llm.new_session()
    begin = len(ids) - 5
    close(session.prefill(ids[:begin]), expected[begin - 1], TOLERANCE)
    for position in range(begin, len(ids)):
        close(session.decode_step(ids[position]), expected[position], TOLERANCE)
    swapped = [*A[:4], *second, *A[4:6], *first, A[6]]
    assert session.prefill_to(swapped) == len(swapped) - 4
    assert np.abs(session.logits - expected[len(swapped) - 1]).max() > 0.01


def image_inputs(rng: np.random.Generator, shape: tuple[int, ...], grid: tuple[int, int]) -> dict[str, np.ndarray]:
    """Random inputs of ``image_embed``; for images of any size, 2 x 2 patches for each token and their positions."""
    if shape[0] == 1:
        return {"pixel_values": rng.normal(size=shape).astype(np.float32)}
    rows, columns = grid
    places = [[(2 * r + i, 2 * c + j) for i in (0, 1) for j in (0, 1)] for r in range(rows) for c in range(columns)]
    pixels = rng.normal(size=(rows * columns, *shape[1:])).astype(np.float32)
    return {"pixel_values": pixels, "patch_pos": np.array(places, np.int32)}


@pytest.mark.parametrize("case", [c for c in CASES if c.quantized], ids=lambda case: case.id)
def test_4_bit_logits_are_those_of_the_decoded_weights(case: Case, tmp_path: Path) -> None:
    model = random_model(case)
    plain = logits(case, model, A)
    with build(case, model, tmp_path, "q4f16_1") as llm:
        got = llm.logits(A)
    expected = logits(case, with_decoded_weights(model, "q4f16_1"), A)
    assert np.abs(plain - expected).max() > 4 * QUANTIZED_TOLERANCE * np.abs(expected).max()
    close(got, expected, QUANTIZED_TOLERANCE)
