"""Find the first kernel of a compiled model whose results depart from a reference: transformers, or another library.

Both compute the same prompt. Every value of the reference is searched for among the results of the kernels, as a whole
or as a range of columns of a fused matmul, so that neither fusion nor names of modules matter. Results that depend on a
wrong one are wrong too: the first kernel after the last one that matches a reference value is the one that departs.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from mlc_errors import UsageError
from mlc_evaluation.kernel_calls import KernelCall, KernelCalls, is_float, stored_rows
from mlc_evaluation.transformers_model import ReferenceValue, TransformersModel
from mlc_runtime.llm import LLM
from mlc_runtime.observation import observing

Array = np.ndarray[Any, Any]
EXACT, QUANTIZED = 1e-3, 0.2
"""Tolerances for unquantized and for quantized weights."""
_DIGITS = re.compile(r"\d+")
UNQUANTIZED = ("q0f32", "q0f16", "q0bf16")


@dataclass(frozen=True)
class KernelResult:
    """A kernel's results per token: arrays [tokens, width]. place: see ``KernelCall``."""

    kernel: str
    place: str
    layer: int | None
    values: tuple[Array, ...]


@dataclass(frozen=True)
class FoundValue:
    """A reference value b and the closest kernel result a. error: ``|a - b| / |b|``; index: of that kernel."""

    value: ReferenceValue
    error: float
    index: int


@dataclass(frozen=True)
class LayerError:
    """The error of a layer's result, or of a module outside of the layers. error: see ``FoundValue``.

    name: in the reference; kernel: the place of the closest kernel.
    """

    name: str
    layer: int | None
    kernel: str
    error: float
    agrees: bool


@dataclass(frozen=True)
class Comparison:
    """The comparison of a model and a reference on the same tokens. layers: the results of layers and of modules
    outside of them, except those that no kernel stores because of fusion.

    departs: the place of the first kernel that departs, empty if all agree; kernel, layer: its name and layer. last:
    the place of the last kernel that agrees. expected: the reference value that no kernel computes.
    """

    tokens: int
    tolerance: float
    layers: list[LayerError]
    departs: str = ""
    kernel: str = ""
    layer: int | None = None
    last: str = ""
    expected: str = ""


def check_tolerance(tolerance: float | None) -> None:
    """Raise UsageError for a tolerance that is negative or not finite."""
    if tolerance is not None and not 0.0 <= tolerance < math.inf:
        raise UsageError(f"--tolerance: got {tolerance:g}; expected a number of at least 0")


def compare_with_transformers(
    llm: LLM, reference: TransformersModel, ids: Sequence[int], tolerance: float | None = None
) -> Comparison:
    """Compare an observed model with transformers on the first tokens of ``ids``, as many as fit into a call.

    tolerance: maximum ``FoundValue.error``; None: ``EXACT``, or ``QUANTIZED`` for quantized weights.
    """
    tokens = first_tokens(llm, ids)
    if tolerance is None:
        tolerance = EXACT if llm.model.spec.quantization in UNQUANTIZED else QUANTIZED
    return _compared(reference.trace(tokens), kernel_results(llm, tokens), len(tokens), tolerance)


def compare_libraries(
    reference: Sequence[KernelResult], kernels: Sequence[KernelResult], tokens: int, tolerance: float
) -> Comparison:
    """Compare the results of a library's kernels with those of another library of the same model."""
    ends = {id(a) for a, b in zip_longest(reference, reference[1:]) if b is None or a.layer != b.layer}
    values = [
        ReferenceValue(k.place, value, k.layer, is_layer=id(k) in ends) for k in reference for value in k.values[:1]
    ]
    return _compared(values, kernels, tokens, tolerance)


def library_tolerance(quantization: str, options: Sequence[str]) -> float:
    """The tolerance for comparing two libraries compiled with ``options`` (from their metadata).

    ``QUANTIZED`` if they round activations to different numbers of bits, else ``EXACT``.
    """
    rounded = {part for text in options for part in text.split(";") if part.startswith("act=")}
    return EXACT if len(rounded) == 1 or quantization == "q0f32" else QUANTIZED


def first_tokens(llm: LLM, ids: Sequence[int]) -> list[int]:
    """The first of ``ids``, as many as fit into one call."""
    return list(ids)[: llm.model.spec.prefill_chunk_size]


def kernel_results(llm: LLM, ids: Sequence[int]) -> list[KernelResult]:
    """The results of all kernels that compute the logits after each of ``ids``, in order."""
    found: list[KernelResult] = []
    with llm.model.lock.held(), llm.model.pool.lent(1) as (row,):

        def keep(call: KernelCall) -> None:
            values = [_rows(a, len(ids)) for a in call.outputs if is_float(a)]
            if not call.results:
                values = [*stored_rows(llm.model, row, len(ids))]
            kept = tuple(v for v in values if v is not None)
            found.append(KernelResult(call.kernel, call.place, call.layer, kept))

        with observing(KernelCalls(llm.model, keep)):
            llm.model.verify(row, ids)
    return found


def _rows(array: Array, tokens: int) -> Array | None:
    """A copy as float32 [tokens, width]; None for arrays without a row per token."""
    if array.size == 0 or tokens not in array.shape[:2]:
        return None
    return array.astype(np.float32).reshape(tokens, -1) if array.size % tokens == 0 else None


def _found(value: ReferenceValue, kernels: Sequence[KernelResult], tolerance: float) -> FoundValue | None:
    """The first kernel within the tolerance of the value, else the closest one; None for a value of zeros."""
    norm = float(np.linalg.norm(value.value))
    if norm == 0.0 or not np.isfinite(norm):
        return None
    errors = [_distance(value.value, k.values) / norm for k in kernels]
    agreeing = next((i for i, error in enumerate(errors) if error <= tolerance), None)
    index = int(np.argmin(errors)) if agreeing is None else agreeing
    return FoundValue(value, errors[index], index)


def _distance(expected: Array, values: Sequence[Array]) -> float:
    """The minimum norm of ``expected - columns`` over ranges of columns of ``values``; infinity if none is as wide."""
    width, least = expected.shape[1], np.inf
    for value in values:
        step = math.gcd(width, value.shape[1])
        for first in range(0, value.shape[1] - width + 1, step):
            with np.errstate(invalid="ignore", over="ignore"):
                distance = float(np.linalg.norm(value[:, first : first + width] - expected))
            least = min(least, distance) if np.isfinite(distance) else least
    return float(least)


def _compared(
    values: Sequence[ReferenceValue], kernels: Sequence[KernelResult], tokens: int, tolerance: float
) -> Comparison:
    found = [f for f in (_found(value, kernels, tolerance) for value in values) if f is not None]
    agreeing = [i for i, f in enumerate(found) if f.error <= tolerance]
    end = agreeing[-1] + 1 if agreeing else 0
    layers = [
        LayerError(f.value.name, f.value.layer, kernels[f.index].place, f.error, f.error <= tolerance)
        for i, f in enumerate(found)
        if f.value.is_layer and (f.error <= tolerance or i >= end)
    ]
    if end == len(found):
        return Comparison(tokens, tolerance, layers)
    wrong = _first_wrong(found, end, tolerance)
    before = max((f.index for f in found[:wrong] if f.error <= tolerance), default=-1)
    after = next((f.index for f in found[wrong:end] if f.error <= tolerance), len(kernels))
    first = next((k for k in kernels[before + 1 : after + 1] if k.values), kernels[before])
    last = kernels[before].place if before >= 0 else ""
    expected = found[wrong].value.name
    return Comparison(tokens, tolerance, layers, first.place, first.kernel, first.layer, last, expected)


def _first_wrong(found: Sequence[FoundValue], end: int, tolerance: float) -> int:
    """The index of the first value that a kernel should compute and none does; ``end``: index after the last match.

    One value of a fused matmul may be wrong although later ones of the same layer are right. A wrong value is
    distinguished from one that fusion removed by an earlier layer in which a kernel computes it.
    """
    layer = found[end - 1].value.layer if end else None
    places = list(_places(found[:end]))
    has = {place for place, f in zip(places, found, strict=False) if f.error <= tolerance}
    for i, (place, f) in enumerate(zip(places, found, strict=False)):
        if f.error > tolerance and f.value.layer == layer is not None and place in has:
            return i
    return end


def _places(found: Sequence[FoundValue]) -> Iterator[tuple[int, str]]:
    """For each value, its number within its layer and its name without numbers, which are the same in equal layers."""
    counts: Counter[int | None] = Counter()
    for f in found:
        yield counts[f.value.layer], _DIGITS.sub("*", f.value.name)
        counts[f.value.layer] += 1
