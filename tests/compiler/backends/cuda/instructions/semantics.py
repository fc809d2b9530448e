"""The semantics of an instruction on arrays, and random operands for it."""

from __future__ import annotations

import numpy as np

from mlc_compiler.interp import run_prim_func
from mlc_compiler.ir import dtype as dt
from mlc_compiler.tir.intrinsics import Operand, TensorIntrin


def evaluate(row: TensorIntrin, *operands: np.ndarray, **scalars: int) -> np.ndarray:
    """Operand 0 after the instruction, by the interpreter."""
    result = np.zeros(row.operands[0].shape, dt.to_numpy(row.operands[0].dtype))
    run_prim_func(row.function, *operands[1:], result, *(scalars[name] for name in row.scalars))
    return (operands[0] + result).astype(result.dtype) if row.accumulates else result


def random_operand(operand: Operand, rng: np.random.Generator) -> np.ndarray:
    """Any words in uint32, small integers in other integer dtypes, normal numbers in floating ones."""
    if dt.is_float(operand.dtype):
        return rng.normal(size=operand.shape).astype(np.float32).astype(dt.to_numpy(operand.dtype))
    if operand.dtype == "uint32":
        return rng.integers(0, 2**32, operand.shape, dtype=np.uint32)
    low = 0 if operand.dtype.startswith("u") else -100
    return rng.integers(low, 100, operand.shape).astype(dt.to_numpy(operand.dtype))
