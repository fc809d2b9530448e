"""How much the predictions of a model change when some of its weights are rounded to 4 bits, measured on a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from mlc_runtime.arrays import aligned_empty
from mlc_runtime.decoder import Decoder
from mlc_toolchain.bit_allocation import Unit, kinds
from mlc_toolchain.calibration import FUNCTION, PART, SCHEME, CalibratedModel
from mlc_toolchain.progress import Progress, Step, silent

LOGITS_BYTES = 64 << 20  # of all tokens
RANGES = 8
"""Layers are measured in that many ranges, since kinds of weights differ more than neighbouring layers do."""


def measured_units(model: CalibratedModel, ids: Sequence[int], progress: Progress = silent) -> list[Unit]:
    """The quantized parameters of a model in units of one kind and neighbouring layers, with their divergences.

    A divergence is the mean Kullback-Leibler divergence, in nats, of the next token's distribution from that of the
    model with weights of 8 bits, over the first of the token ids; more are not taken than LOGITS_BYTES of logits allow.
    """
    ranges, units = list(_ranges(model.names)), []
    with model.decoder(lambda logits, _: [logits()]) as decoder:
        ids = ids[: min(PART, max(1, LOGITS_BYTES // (4 * decoder.spec.vocab_size)))]
        exact = _log_probabilities(decoder, ids)
        for number, names in enumerate(ranges):
            progress(Step("measure", number, len(ranges), "ranges of layers", detail=names[0]))
            codes = [i for i, p in enumerate(decoder.spec.params) if _weight_of(p.name) in names]
            elements = sum(4 * prod(decoder.spec.params[i].shape) for i in codes)
            units.append(Unit(names, elements, _divergence(decoder, codes, ids, exact)))
    return units


def _ranges(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for alike in kinds(names).values():
        size = -(-len(alike) // RANGES)
        for start in range(0, len(alike), size):
            yield tuple(alike[start : start + size])


def _weight_of(parameter: str) -> str:
    """The weight that codes are of; empty for other parameters."""
    stem = parameter.removesuffix(".q_weight")
    return "" if stem == parameter else f"{stem}.weight"


def _divergence(decoder: Decoder, rounded: Sequence[int], ids: Sequence[int], exact: np.ndarray) -> float:
    """With the codes of these parameters rounded, whatever their layout: words hold a code in each byte."""
    table, rows, kept = decoder.params.table, rounding_table(), []
    try:
        for i in rounded:
            codes = decoder.params.arrays[i]
            coarse = aligned_empty(codes.shape, codes.dtype)
            np.take(rows, np.asarray(codes).view(np.uint8), out=coarse.view(np.uint8))
            kept.append(coarse)
            table[i] = coarse.ctypes.data
        changed = _log_probabilities(decoder, ids)
    finally:
        for i in rounded:
            table[i] = decoder.memory.address(decoder.params.arrays[i])
    return float((np.exp(exact) * (exact - changed)).sum(-1).mean())


def rounding_table() -> np.ndarray:
    """uint8 [256]: for a code of 8 bits the nearest of the 15 that stand for the values of symmetric 4-bit codes."""
    zero = SCHEME.zero_point
    levels = np.clip(np.rint((np.arange(256) - zero) * (7 / zero)), -7, 7)
    return np.rint(zero + levels * (zero / 7)).astype(np.uint8)


def _log_probabilities(decoder: Decoder, ids: Sequence[int]) -> np.ndarray:
    """float32 [tokens, V]"""
    logits = np.concatenate([made.reshape(-1, made.shape[-1]) for (made,) in decoder.results(FUNCTION, ids)])
    logits -= logits.max(-1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
    return logits
