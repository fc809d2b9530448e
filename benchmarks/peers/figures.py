"""Compute figures from samples: tokens per second, and shares of the machine's limits."""

from __future__ import annotations

from dataclasses import dataclass

from mlc_evaluation.machine_limits import measure_int8, measure_limits
from peers.catalog import Variant
from peers.cells import Cell, Kind
from peers.results import Figure
from peers.sampling import Settings, Taken
from peers.shapes import Shape

INTEGER_SCHEMES = ("q4", "q8")


@dataclass(frozen=True)
class Limits:
    """Limits of the machine per second: bytes read, and operations of the kind that a scheme can use."""

    read_bytes_per_s: float
    op_per_s: float

    @staticmethod
    def measure(threads: int, scheme: str) -> Limits:
        """Measure the limits: int8 operations for quantized weights if the CPU has them, else float32."""
        limits = measure_limits(threads)
        integers = measure_int8(threads) if scheme in INTEGER_SCHEMES else None
        return Limits(limits.read_bytes_per_s, integers or limits.flop_per_s)

    def or_better(self, other: Limits) -> Limits:
        return Limits(max(self.read_bytes_per_s, other.read_bytes_per_s), max(self.op_per_s, other.op_per_s))


def figure(cell: Cell, taken: Taken, shape: Shape, variant: Variant, limits: Limits) -> Figure:
    """The figure of a cell; rejected if there are too few quiet samples, or if its share is above 1."""
    samples = [s.seconds for s in taken.samples], [round(s.others, 3) for s in taken.samples]
    if taken.median is None:
        reason = taken.failed or f"{len(taken.quiet)} of {len(taken.samples)} samples were quiet"
        return Figure(None, None, reason, *samples)
    share = _share(cell, taken.median, taken.settings, shape, variant, limits)
    if share > 1:
        return Figure(None, share, f"{share:.2f} of the machine's limit", *samples)
    tokens = cell.prompt if cell.kind is Kind.PREFILL else taken.settings.steps
    return Figure(tokens * cell.batch / taken.median, share, None, *samples)


def _share(cell: Cell, seconds: float, settings: Settings, shape: Shape, variant: Variant, limits: Limits) -> float:
    """The share of the limit: operations per second for prefill, bytes read per second for decode."""
    if cell.kind is Kind.PREFILL:
        return shape.prefill_flop(cell.prompt) / seconds / limits.op_per_s
    step = shape.step_bytes(variant.weight_bits, variant.cache_bytes, cell.batch, cell.tokens)
    return step * settings.steps / seconds / limits.read_bytes_per_s
