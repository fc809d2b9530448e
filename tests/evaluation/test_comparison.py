"""Values of a reference model matched to results of kernels: parts of columns, fused values, the first kernel that
differs."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler.optimization import Optimization
from mlc_evaluation.comparison import EXACT, QUANTIZED, KernelResult, _compared, library_tolerance
from mlc_evaluation.transformers_model import ReferenceValue

RNG = np.random.default_rng(1)
TOKENS = 5
EMBEDDED, Q, K, V, ATTENDED, ADDED, LOGITS = (
    RNG.normal(size=(TOKENS, width)).astype(np.float32) for width in (6, 4, 2, 2, 4, 6, 9)
)
REFERENCE = [
    ReferenceValue("embed", EMBEDDED, None, True),
    ReferenceValue("layers.0.q", Q, 0, False),
    ReferenceValue("layers.0.k", K, 0, False),
    ReferenceValue("layers.0.v", V, 0, False),
    ReferenceValue("layers.0.attention", ATTENDED, 0, False),
    ReferenceValue("layers.0.proj", ADDED - EMBEDDED, 0, False),
    ReferenceValue("layers.0", ADDED, 0, True),
    ReferenceValue("head", LOGITS / 30, None, True),
    ReferenceValue("logits", np.tanh(LOGITS / 30), None, True),
]


def kernels(**changed: np.ndarray) -> list[KernelResult]:
    """Kernels with the values of the reference: one product for q, k and v, an append, the sum and the cap fused."""
    values = {
        "take": EMBEDDED,
        "qkv": np.hstack([Q, K, V]),
        "append": None,
        "attention": ATTENDED,
        "proj_add": ADDED,
        "head_tanh": np.tanh(LOGITS / 30),
    } | changed
    layers = {"take": None, "head_tanh": None}
    return [
        KernelResult(name, f"kernel {name}", layers.get(name, 0), () if v is None else (v,))
        for name, v in values.items()
    ]


def test_fused_kernels_agree():
    found = _compared(REFERENCE, kernels(), TOKENS, 1e-4)
    assert (found.departs, found.last) == ("", "")
    assert [(e.name, e.kernel) for e in found.layers] == [  # no kernel has the head without its cap
        ("embed", "kernel take"),
        ("layers.0", "kernel proj_add"),
        ("logits", "kernel head_tanh"),
    ]


def test_the_first_kernel_that_departs_is_named():
    wrong = {"attention": ATTENDED + 1, "proj_add": ADDED + 1, "head_tanh": np.tanh(LOGITS)}
    found = _compared(REFERENCE, kernels(**wrong), TOKENS, 1e-4)
    assert (found.kernel, found.layer, found.departs) == ("attention", 0, "kernel attention")
    assert (found.last, found.expected) == ("kernel qkv", "layers.0.attention")
    assert [(e.name, e.agrees) for e in found.layers] == [
        ("embed", True),
        ("layers.0", False),
        ("head", False),
        ("logits", False),
    ]


def test_a_part_of_a_product_that_is_wrong():
    """In the second layer; queries and values of the same product are right there."""
    second = RNG.normal(size=(TOKENS, 8)).astype(np.float32)
    parts = {"q": second[:, :4], "k": second[:, 4:6], "v": second[:, 6:]}
    values = [ReferenceValue(f"layers.1.{name}", part, 1, False) for name, part in parts.items()]
    wrong = second + np.array([0, 0, 0, 0, 1, 1, 0, 0])
    more = [KernelResult(n, f"second {n}", 1, (v,)) for n, v in (("qkv", wrong), ("attention", second[:, 4:] * 2))]
    reference = [*REFERENCE[:-2], *values, ReferenceValue("logits", LOGITS, None, True)]
    found = _compared(reference, [*kernels()[:-1], *more], TOKENS, 1e-4)
    assert (found.departs, found.layer, found.expected) == ("second qkv", 1, "layers.1.k")
    assert found.last == "second qkv"  # which has the queries


def test_nothing_agrees():
    wrong = {name: np.zeros((TOKENS, 6), np.float32) for name in ("take", "qkv", "attention", "proj_add", "head_tanh")}
    found = _compared(REFERENCE, kernels(**wrong), TOKENS, 1e-4)
    assert (found.departs, found.last, found.expected) == ("kernel take", "", "embed")


@pytest.mark.parametrize(
    ("quantization", "reference", "expected"),
    [("q4f16_1", "O2;act=8", EXACT), ("q4f16_1", "O0", QUANTIZED), ("q0f32", "O0", EXACT)],
)
def test_libraries_that_round_activations_differently_may_differ_more(
    quantization: str, reference: str, expected: float
):
    options = [Optimization.parse(text).text for text in ("O3", reference)]
    assert library_tolerance(quantization, options) == expected
