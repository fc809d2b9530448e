"""Recurrences on a CPU whose columns or channels are independent: tiles over the worker team, SIMD within a tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....relax.ops.recurrent.convolution import Convolution
from ....relax.ops.recurrent.delta_rule import GatedDeltaRule
from ....relax.ops.recurrent.matrix_state import MatrixRecurrence
from ....relax.ops.recurrent.rwkv import Rwkv7, Wkv
from ....relax.ops.recurrent.shift import TokenShift
from ....relax.ops.recurrent.state_space import SelectiveScan, Ssd
from ....relax.tensor_call import TensorExpression
from ....target import Target
from ....tir import te
from ..machine import Cpu

Recurrence = Callable[..., MatrixRecurrence | TokenShift | Convolution]
VECTORS = 4  # of sums in a tile: independent chains of additions


def recurrent_kernels(target: Target) -> dict[str, TensorExpression]:
    """Operator name -> kernel, see ``kernels_of``."""
    lanes = Cpu.of(target).lanes(32)
    recurrences: dict[str, Recurrence] = {
        "recurrent.causal_conv": Convolution,
        "recurrent.gated_delta_rule": GatedDeltaRule,
        "recurrent.rwkv7": Rwkv7,
        "recurrent.selective_scan": SelectiveScan,
        "recurrent.ssd": Ssd,
        "recurrent.wkv": Wkv,
        "recurrent.token_shift": TokenShift,
    }
    return {name: _parallel(recurrence, VECTORS * lanes) for name, recurrence in recurrences.items()}


def _parallel(recurrence: Recurrence, width: int) -> TensorExpression:
    def kernel(*operands: te.Tensor, **attrs: Any) -> list[te.Tensor]:
        return recurrence(*operands, **attrs, width=width).parallel_results()

    return kernel
