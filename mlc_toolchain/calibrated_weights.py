"""Calibrated quantization: codes of weights chosen with statistics of the layers' inputs; scales of float8 inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from mlc_errors import MLCError
from model_zoo.weight_map import Production
from quantization import error_feedback, fp8, group, rows
from quantization.rewrite import WeightFormat
from quantization.schemes import Scheme


class StoredArrays(Mapping[str, np.ndarray]):
    """Arrays by name, read from their files at each access."""

    def __init__(self, paths: Mapping[str, Path]):
        self._paths = paths

    def __getitem__(self, name: str) -> np.ndarray:
        array: np.ndarray = np.load(self._paths[name])
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


@dataclass(frozen=True)
class Calibration:
    """Statistics of the layers' inputs over the tokens of a text, by parameter.

    squares: float32 [K], mean squares of the inputs. products: X^T X over the tokens, float32 [K, K], in files;
    only for error feedback. source: description recorded in the metadata of the weights. largest: maximum magnitudes
    of the inputs, only for float8 inputs.
    """

    squares: Mapping[str, np.ndarray]
    products: Mapping[str, np.ndarray]
    source: Mapping[str, Any]
    largest: Mapping[str, np.float32] = field(default_factory=dict)


def encode_calibrated(
    blocks: group.Blocks, production: Production, form: WeightFormat, calibration: Calibration
) -> dict[str, np.ndarray]:
    """Codes and scales of a parameter: by error feedback if there are products, else by weighted scale search.

    For parameters without statistics, whose layers did not run on the text, the scale search is unweighted.
    With float8 inputs, the codes are those of ``fp8``, and a scale of the inputs is added.
    Raises ValueError for weights that overflow float16, MLCError for float8 inputs that were not measured.
    """
    if form.scheme.kind == "rows":

        def encode(own: group.Blocks, shape: tuple[int, ...], part: Scheme) -> dict[str, np.ndarray]:
            return encode_calibrated(own, replace(production, shape=shape), replace(form, scheme=part), calibration)

        return rows.encoded(blocks, production.shape, form.scheme, encode)
    if form.scheme.measures_inputs:
        scale = _input_scale(production, form, calibration)
        return fp8.encode_rows(blocks, production.shape, form.scheme, form.layout, scale)
    scheme, shape = form.scheme.searched, production.shape
    products = calibration.products.get(production.name)
    if products is None:
        squares = calibration.squares.get(production.name)
        return group.encode_rows(blocks, shape, scheme, form.layout, squares)
    whole = np.concatenate([block.reshape(-1, shape[-1]) for block in blocks()])
    made = error_feedback.encode(whole, products, scheme)
    return {kind: group.laid_out(array.reshape(*shape[:-1], -1), form.layout) for kind, array in made.items()}


def _input_scale(production: Production, form: WeightFormat, calibration: Calibration) -> float:
    largest = calibration.largest.get(production.name)
    scale = math.inf if largest is None else float(fp8.tensor_scale(largest, form.scheme))
    if not math.isfinite(scale):
        got = "the layer did not run on the text" if largest is None else f"inputs reach {largest:g} on the text"
        raise MLCError(
            f"{form.scheme.name}: {production.name} has no scale for its inputs: {got}",
            hint="take e4m3_e4m3_f16, which leaves inputs in their own type",
        )
    return scale
