"""Scale channels so that quantization keeps those with large inputs more exactly.

Lin et al. 2023, "AWQ: Activation-aware Weight Quantization for LLM Compression and Acceleration": the columns of a
layer's weight are multiplied by factors, and what produces the layer's inputs is divided by them. Factors are a power
of the root mean square of the input channels, the power that minimizes the error of the layer's outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from mlc_toolchain.calibrated_weights import Calibration
from mlc_toolchain.channel_graph import Channels, scalable_channels
from mlc_toolchain.conversion_plan import Conversion
from mlc_toolchain.weight_stream import ParameterTask
from model_zoo.registry import ExportedModel
from model_zoo.weight_expr import ScaledAxis
from quantization import group
from quantization.rewrite import WeightFormat

POWERS = np.arange(0.0, 0.65, 0.1)
SAMPLE = group.COMPILED_ELEMENTS  # least elements of a weight on which powers are compared
LEAST = 1e-6
"""Mean squares are at least this share of their mean: factors of inputs that are always 0 stay finite."""


def scale_channels(conversion: Conversion, model: ExportedModel, calibration: Calibration) -> Conversion:
    """The conversion with calibration and scaled channels.

    model: the architecture's functions with unquantized weights. Channels are scaled where all their consumers are
    quantized by scale search and were measured.
    """
    squares = dict(calibration.squares)
    for channels in scalable_channels(model.mod, [parameter.name for parameter in model.params]):
        tasks = [task for task in conversion.tasks if task.production.name in channels.consumers]
        known = [squares.get(task.production.name) for task in tasks]
        if all(map(_is_searched, tasks)) and all(mean is not None for mean in known):
            factors = _best_factors(tasks, known[0], conversion)
            conversion = fold_factors(conversion, channels, factors)
            squares |= {name: squares[name] / np.square(factors) for name in channels.consumers}
    return replace(conversion, calibration=replace(calibration, squares=squares))


def fold_factors(conversion: Conversion, channels: Channels, factors: np.ndarray) -> Conversion:
    """The conversion with the columns of the consumers multiplied, and the producers' elements divided, by ``factors``
    float32 [K]: a model with the same results."""

    def folded(task: ParameterTask) -> ParameterTask:
        if task.production.name in channels.consumers:
            task = _scaled(task, factors, axis=-1)
        if task.production.name in channels.producers:
            whole = np.ones(task.production.shape[0], np.float32)
            whole[channels.first : channels.first + len(factors)] /= factors
            task = _scaled(task, whole, axis=0)
        return task

    tasks = tuple(map(folded, conversion.tasks))
    plan = replace(conversion.plan, productions=tuple(task.production for task in tasks))
    return replace(conversion, tasks=tasks, plan=plan)


def _is_searched(task: ParameterTask) -> bool:
    return task.format is not None and task.format.scheme.kind == "group" and task.format.scheme.can_calibrate


def _scaled(task: ParameterTask, factors: np.ndarray, axis: int) -> ParameterTask:
    production = task.production
    value = ScaledAxis((production.value,), factors, axis % len(production.shape))
    return replace(task, production=replace(production, value=value))


def _best_factors(tasks: Sequence[ParameterTask], squares: np.ndarray | None, conversion: Conversion) -> np.ndarray:
    """The factors, float32 [K], with the smallest error of the outputs of the layers ``tasks`` together."""
    assert squares is not None
    sizes = np.sqrt(np.maximum(squares, LEAST * squares.mean()))
    rows = [(_sampled_rows(task, conversion), task.format) for task in tasks]
    tried = [_normalized(sizes**power) for power in POWERS]
    errors = [sum(_error(w, form, squares, factors) for w, form in rows if form) for factors in tried]
    return tried[int(np.argmin(errors))]


def _normalized(factors: np.ndarray) -> np.ndarray:
    """Divided by the geometric mean of the extremes, so that the produced values keep their magnitude."""
    scaled: np.ndarray = (factors / np.sqrt(factors.max() * factors.min())).astype(np.float32)
    return scaled


def _sampled_rows(task: ParameterTask, conversion: Conversion) -> np.ndarray:
    """Rows of a weight, float32 [n, K], evenly from all of it."""
    rows = task.production.value.evaluate(conversion.reader.read).reshape(-1, task.production.shape[-1])
    sample: np.ndarray = rows[:: max(1, rows.size // SAMPLE)].astype(np.float32)
    for source in task.production.value.sources():
        conversion.reader.release(source)
    return sample


def _error(rows: np.ndarray, form: WeightFormat, squares: np.ndarray, factors: np.ndarray) -> float:
    """The squared error of the outputs of scaled and quantized rows for inputs of these mean squares."""
    scheme, scaled = form.scheme.searched, rows * factors
    made = group.encode_rows(lambda: [scaled], scaled.shape, scheme, "NK", (squares / np.square(factors)))
    decoded = _joined(group.decode_rows(made, scheme, scaled.shape, "NK")) / factors
    return float((np.square(decoded - rows) * squares).sum())


def _joined(blocks: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([block.astype(np.float32) for block in blocks])
