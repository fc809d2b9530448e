"""Codes of weights that are chosen by statistics of the layers' inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from model_zoo.weight_map import Production
from quantization import error_feedback, group
from quantization.rewrite import WeightFormat


class StoredArrays(Mapping[str, np.ndarray]):
    """Arrays by name, read from their files each time that they are asked for."""

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
    """Statistics by parameter, over the tokens of a text.

    squares: float32 [K], mean squares of the layer's inputs. products: X^T X over the tokens, float32 [K, K], in files;
    for error feedback only. source: where they come from, as recorded in the metadata of weights.
    """

    squares: Mapping[str, np.ndarray]
    products: Mapping[str, np.ndarray]
    source: Mapping[str, Any]


def encode_calibrated(
    blocks: group.Blocks, production: Production, form: WeightFormat, calibration: Calibration
) -> dict[str, np.ndarray]:
    """Codes and scales of a parameter: by error feedback where there are products, else by weighted scale search.

    Parameters without statistics, whose layers did not run on the text, get scales that are searched without weights.
    Raises ValueError for weights that float16 cannot hold.
    """
    scheme, shape = form.scheme.searched, production.shape
    products = calibration.products.get(production.name)
    if products is None:
        squares = calibration.squares.get(production.name)
        return group.encode_rows(blocks, shape, scheme, form.layout, squares)
    rows = np.concatenate([block.reshape(-1, shape[-1]) for block in blocks()])
    made = error_feedback.encode(rows, products, scheme)
    return {kind: group.laid_out(array.reshape(*shape[:-1], -1), form.layout) for kind, array in made.items()}
