"""Quantized and half-precision models against torch models that hold the decoded weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mlc_runtime import LLM
from quantization.schemes import get_scheme
from tests.e2e import oracle
from tests.e2e.checkpoints import CONTEXT, VOCAB, configs

IDS = np.random.default_rng(4).integers(0, VOCAB, CONTEXT).tolist()
PROMPT = 37

# Keys and values are stored alike. What differs is the rounding of activations to 16 bits in products with 4-bit
# weights, the order of sums in float32, and what these change in the rounding of keys and values to float16.
CASES = [
    ("llama-bias-tied", "q4f16_1", 1e-3),
    ("llama-bias-tied", "q4f16_nl,*down_proj=q6f16_3,*qkv_proj=q5f16_3,head=q8f16_1", 2e-3),
    ("llama-bias-tied", "q4f16_nl8,head[:16]=q8f16_1,head[:48]=q5f16_nl8", 1e-3),
    ("llama-odd-llama3", "q4f16_nl,head[:256]=q6f16_nl8,*up_proj[:32]=q5f16_nl8", 3e-3),
    ("llama-bias-tied", "q4f16_nvfp4", 1e-3),
    ("llama-bias-tied", "q4f16_nl8,*down_proj=q6f16_nl8,*qkv_proj=q5f16_nl8,*o_proj=q3f16_nl8", 1e-3),
    ("gpt2-tied", "q4f16_1", 1e-3),
    ("mistral-window", "q0f16", 1e-3),
    ("mixtral", "q4f16_1", 2e-3),  # the weights of experts depend on rounded activations, too
]


@pytest.mark.parametrize(("name", "scheme", "tolerance"), CASES)
def test_logits_are_those_of_the_decoded_weights(
    name: str,
    scheme: str,
    tolerance: float,
    tiny_folder: Callable[[str, str], Path],
    opened: Callable[[Path, int], LLM],
):
    folder = tiny_folder(name, scheme)
    used = get_scheme(scheme)
    parts = [used, *(get_scheme(part) for _, part in used.parts)]
    books = {part.bits: part.values for part in parts if part.values}
    model, llm = oracle.from_folder(configs()[name], folder, books, used.group or oracle.GROUP), opened(folder, 2)
    session = llm.new_session()
    last = session.prefill(IDS[:PROMPT]).copy()
    steps = [session.decode_step(i).copy() for i in IDS[PROMPT:]]
    for got in (llm.logits(IDS), np.stack([*llm.logits(IDS[: PROMPT - 1]), last, *steps])):
        alike = oracle.logits(model, IDS, half_cache="f16" in scheme)
        np.testing.assert_allclose(got, alike, rtol=0, atol=tolerance)
        np.testing.assert_allclose(got, oracle.logits(model, IDS), rtol=0, atol=2e-2)
