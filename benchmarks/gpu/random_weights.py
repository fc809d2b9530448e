"""Random weights instead of a converted checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mlc_runtime.dtypes import dtype_of
from mlc_runtime.model_spec import ParamSpec
from mlc_runtime.weight_index import TensorRecord
from mlc_runtime.weights import TensorCache

BLOCK = 1 << 20  # elements, repeated in larger tensors
SPREAD = 0.02
SCALE_SPREAD = 0.004  # spread of the scales of quantized weights


class RandomWeights(TensorCache):
    """Tensors for the parameters of a library: norms are 1, codes are random bits, all others are normal numbers.

    Layers preserve the magnitude of their inputs, so that no activation overflows float16.
    """

    def __init__(self, specs: Sequence[ParamSpec]):
        self.folder = Path("random weights")
        self.records = {s.name: TensorRecord(s.name, s.shape, s.dtype, s.dtype, "", 0) for s in specs}
        rng = np.random.default_rng(0)
        self._bits = rng.integers(0, 2**32, BLOCK, dtype=np.uint32)
        self._normal = rng.standard_normal(BLOCK, np.float32)

    def read(self, name: str) -> np.ndarray:
        record = self.records[name]
        dtype = dtype_of(record.dtype)
        if dtype.kind in "iu":
            return np.resize(self._bits.view(dtype), record.shape)
        if len(record.shape) == 1:
            return np.ones(record.shape, dtype)
        spread = SCALE_SPREAD if name.endswith("scale") else SPREAD
        return np.resize((spread * self._normal).astype(dtype), record.shape)

    def forget(self, name: str) -> None:
        """Nothing to release."""
