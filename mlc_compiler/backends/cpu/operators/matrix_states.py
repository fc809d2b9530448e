"""Recurrences on a CPU whose columns or channels are independent: tiles over the worker team, SIMD within a tile."""

from __future__ import annotations

from collections.abc import Callable

from ....relax.ops.recurrent.delta_rule import GatedDeltaRule
from ....relax.ops.recurrent.matrix_state import MatrixRecurrence
from ....relax.ops.recurrent.rwkv import Rwkv7, Wkv
from ....relax.ops.recurrent.shift import TokenShift
from ....relax.tensor_call import TensorExpression
from ....target import Target
from ....tir import te
from ..machine import Cpu

Recurrence = Callable[..., MatrixRecurrence | TokenShift]
VECTORS = 4  # of sums in a tile: independent chains of additions


def matrix_kernels(target: Target) -> dict[str, TensorExpression]:
    """Operator name -> kernel, see ``kernels_of``."""
    lanes = Cpu.of(target).lanes(32)
    recurrences: dict[str, Recurrence] = {
        "recurrent.gated_delta_rule": GatedDeltaRule,
        "recurrent.rwkv7": Rwkv7,
        "recurrent.wkv": Wkv,
        "recurrent.token_shift": TokenShift,
    }
    return {name: _parallel(recurrence, VECTORS * lanes) for name, recurrence in recurrences.items()}


def _parallel(recurrence: Recurrence, width: int) -> TensorExpression:
    def kernel(*operands: te.Tensor) -> list[te.Tensor]:
        return recurrence(*operands, width=width).parallel_results()

    return kernel
