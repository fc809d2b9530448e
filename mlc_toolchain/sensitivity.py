"""Sensitivity analysis: the divergence of a model's predictions when some of its weights are quantized, on a text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from pathlib import Path

import numpy as np

from mlc_runtime.decoder import Decoder
from mlc_runtime.memory import Array
from mlc_runtime.weights import TensorCache
from mlc_toolchain.bit_allocation import Unit, kinds
from mlc_toolchain.calibration import FUNCTION, PART, SCHEME, CalibratedModel
from mlc_toolchain.progress import Progress, Step, silent
from model_zoo.weight_map import Shape
from quantization import group
from quantization.rewrite import WeightFormat
from quantization.schemes import HEAD

LOGITS_BYTES = 128 << 20  # of all tokens; several arrays of that size exist at a time
HEAD_SHARES = (32, 8, 2)
"""Ranges of an output head end at the V / 32-th token, and so on: the ids of frequent tokens are low (``rows``)."""
ROWS = 256  # rows of ranges are multiples of it, as matmuls compute several together
RANGES = 8
"""Number of ranges of layers that are measured; kinds of weights differ more than neighbouring layers do."""
OUTSTANDING = 1.5
"""Ranges whose divergence per element exceeds their kind's mean by this factor are measured layer by layer."""


@dataclass(frozen=True)
class CoarseWeights:
    """A folder of weights in the scheme whose divergence is measured. shapes, formats: by parameter."""

    folder: Path
    shapes: Mapping[str, Shape]
    formats: Mapping[str, WeightFormat]

    @cached_property
    def _cache(self) -> TensorCache:
        return TensorCache(self.folder)

    def elements(self, name: str, rows: slice | None = None) -> int:
        """The number of stored codes of all or some rows, including padding of groups."""
        *outer, inputs = self.shapes[name]
        outputs = prod(outer) if rows is None else rows.stop - rows.start
        return outputs * self.formats[name].scheme.words(inputs) * 32 // self.formats[name].scheme.bits

    def ranges(self, name: str) -> list[slice]:
        """The ranges of rows of an output head that are measured on their own; none for other weights."""
        outputs = self.shapes[name][0]
        stops = [outputs // share // ROWS * ROWS for share in HEAD_SHARES]
        if (self.formats[name].role, self.formats[name].layout) != (HEAD, "NK") or not stops[0]:
            return []
        return [slice(*ends) for ends in pairwise([0, *stops, outputs])]

    def as_eight_bits(self, name: str) -> dict[str, np.ndarray]:
        """The weight requantized to ``SCHEME`` (8 bits), whose rounding is small compared with the coarse scheme's."""
        form, stem, shape = self.formats[name], name.removesuffix("weight"), self.shapes[name]
        made = {kind: self._cache.read(stem + kind) for kind in ("q_weight", "q_scale")}

        def blocks() -> Iterator[np.ndarray]:
            return group.decode_rows(made, form.scheme, shape, form.layout)

        eight = group.encode_rows(blocks, shape, SCHEME, SCHEME.layout)
        for kind in made:
            self._cache.forget(stem + kind)
        return eight


def measured_units(
    model: CalibratedModel, coarse: CoarseWeights, ids: Sequence[int], progress: Progress = silent
) -> list[Unit]:
    """The quantized parameters of a model in units with their divergences: consecutive layers of one kind, or rows of
    an output head.

    The divergence is the mean Kullback-Leibler divergence, in nats, of the next token's distribution from that of the
    model with 8-bit weights, over tokens from both ends of the text, as many as LOGITS_BYTES of logits allow.
    """
    units: list[Unit] = []
    alike = list(kinds(model.names).values())
    with model.decoder(lambda logits, _: [logits()]) as decoder:
        length = min(PART, len(ids) // 2, max(1, LOGITS_BYTES // (8 * decoder.spec.vocab_size)))
        texts = (ids[:length], ids[-length:])
        measure = _Measurement(decoder, TensorCache(model.folder), coarse, texts, _log_probabilities(decoder, texts))
        for number, names in enumerate(alike):
            progress(Step("measure", number, len(alike), "kinds of weights", detail=names[0]))
            ranges = coarse.ranges(names[0])
            units += [measure(tuple(names), rows) for rows in ranges] if ranges else _of_kind(names, measure)
        progress(Step("measure", len(alike), len(alike), "kinds of weights"))
    return units


def _of_kind(names: Sequence[str], measure: Callable[[tuple[str, ...]], Unit]) -> Iterator[Unit]:
    """Measure the units of parameters of one kind, which differ only in their layer."""
    size = -(-len(names) // RANGES)
    ranges = [measure(tuple(names[start : start + size])) for start in range(0, len(names), size)]
    usual = sum(unit.divergence for unit in ranges) / sum(unit.elements for unit in ranges)
    for unit in ranges:
        if len(unit.names) > 1 and unit.divergence > OUTSTANDING * usual * unit.elements:
            yield from (measure((name,)) for name in unit.names)
        else:
            yield unit


@dataclass(frozen=True)
class _Measurement:
    """Measures the divergence of units on texts. plain: the decoder's weights. exact: its log probabilities."""

    decoder: Decoder
    plain: TensorCache
    coarse: CoarseWeights
    texts: Sequence[Sequence[int]]
    exact: np.ndarray

    def __call__(self, names: tuple[str, ...], rows: slice | None = None) -> Unit:
        """The unit of these parameters, or of rows of a single one."""
        decoder, changed = self.decoder, self._changed(names, rows)
        table = decoder.params.table
        try:
            for i, array in changed.items():
                table[i] = decoder.memory.address(array)
            rounded = _log_probabilities(decoder, self.texts)
        finally:
            for i in changed:
                table[i] = decoder.memory.address(decoder.params.arrays[i])
        divergence = float((np.exp(self.exact) * (self.exact - rounded)).sum(-1).mean())
        return Unit(names, sum(self.coarse.elements(name, rows) for name in names), divergence, rows)

    def _changed(self, names: tuple[str, ...], rows: slice | None) -> dict[int, Array]:
        """The arrays of the decoder with coarse weights, by their number."""
        made = {}
        for name in names:
            for kind, array in self.coarse.as_eight_bits(name).items():
                place = name.removesuffix("weight") + kind
                made[place] = array if rows is None else _with_rows(self.plain.read(place), rows, array)
        specs = enumerate(self.decoder.spec.params)
        return {i: self.decoder.packed(spec, made[spec.name]) for i, spec in specs if spec.name in made}


def _with_rows(whole: np.ndarray, rows: slice, other: np.ndarray) -> np.ndarray:
    changed = whole.copy()
    changed[rows] = other[rows]
    return changed


def _log_probabilities(decoder: Decoder, texts: Sequence[Sequence[int]]) -> np.ndarray:
    """Log probabilities of the next token of each text, float32 [tokens, V]."""
    results = (made for ids in texts for (made,) in decoder.results(FUNCTION, ids))
    logits = np.concatenate([made.reshape(-1, made.shape[-1]).copy() for made in results])
    logits -= logits.max(-1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
    return logits
