"""Measures the column "max error" of docs/models.md: ``python -m tests.model_zoo.measure_errors [NAME...]``.

The error of an architecture is the largest difference from transformers in float32, relative to the largest value of
what is compared at once, over all of its variants, as users compile them. Without names, all architectures are
measured, about 15 minutes; with names, the other errors in the file stay.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.model_zoo import draft_heads, encoder_cases
from tests.model_zoo.architecture_cases import CASES, CONTEXT, Case
from tests.model_zoo.comparisons import Pair, of_decoder, of_encoder, of_encoder_decoder
from tests.model_zoo.compiled import build, random_model
from tests.model_zoo.interpreted import CLASSES, SIZES
from tests.model_zoo.test_models import VARIANTS

FILE = Path(__file__).parents[1] / "data" / "model_errors.json"
"""Errors by name of the architecture."""

DECODERS = (*CASES, *(Case(name, CLASSES[name][0], options, sizes=SIZES[name]) for name, options in VARIANTS))
ALL_CASES: tuple[Case, ...] = (*DECODERS, *encoder_cases.CASES, *encoder_cases.ENCODER_DECODERS)


def error_of(case: Case | str) -> float:
    """The largest relative difference of one variant, or of a draft head."""
    with tempfile.TemporaryDirectory() as folder:
        return max(_relative(got, expected) for got, expected in _pairs(case, Path(folder)))


def _pairs(case: Case | str, folder: Path) -> Iterator[Pair]:
    if isinstance(case, str):
        yield from draft_heads.of_head(case, folder, optimized=True)
        return
    model = random_model(case)
    if isinstance(case, encoder_cases.EncoderCase):
        with build(case, model, folder, model_type=case.model_type, chunk=CONTEXT) as llm:
            yield from of_encoder(model, llm)
    elif isinstance(case, encoder_cases.EncoderDecoderCase):
        with build(case, model, folder, chunk=CONTEXT) as llm:
            yield from of_encoder_decoder(model, llm)
    else:
        with build(case, model, folder) as llm:
            yield from of_decoder(case, model, llm)


def _relative(got: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(got - expected).max() / np.abs(expected).max())


def main(names: list[str]) -> None:
    """Measure, and write ``FILE`` after each variant."""
    kept = json.loads(FILE.read_text()) if names else {}
    errors = {name: error for name, error in kept.items() if name not in names}
    for name, case in (*((c.name, c) for c in ALL_CASES), *((head, head) for head in draft_heads.COMPARISONS)):
        if names and name not in names:
            continue
        error = float(f"{error_of(case):.1e}")
        errors[name] = max(error, errors.get(name, 0.0))
        FILE.write_text(json.dumps(dict(sorted(errors.items())), indent=1) + "\n")
        print(f"{name if isinstance(case, str) else case.id}: {error:.1e}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
