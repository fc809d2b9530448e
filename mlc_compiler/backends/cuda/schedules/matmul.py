"""Schedules of matmuls."""

from __future__ import annotations

from ....schedules.rule import Rule
from ....target import Target
from ....tir.nodes import PrimFunc
from ....tir.schedule import Schedule
from ..machine import Gpu
from ..matmul.experts import expert_kernel, match_fused_expert_matmul
from ..matmul.few_rows import has_statistics_kernel
from ..matmul.fma import fma_kernel
from ..matmul.fused_matmul import match_fused_matmul
from ..matmul.tensor_cores import tensor_core_kernel
from ..matmul.weight_layouts import with_layouts


class Matmul(Rule):
    """``epilogue(x @ w)`` with a stored or a dequantized weight; on tensor cores for activations of 16 bits.

    ``matmul/tensor_cores.py`` and ``matmul/fma.py`` have the algorithms. Rows may be symbolic; columns and depth are
    constants of any size.
    """

    def apply(self, func: PrimFunc, target: Target) -> Schedule | None:
        gpu = Gpu.of(target)
        matmul = match_fused_matmul(func, gpu)
        if matmul is None or (matmul.statistics and not has_statistics_kernel(matmul)):
            return None
        if matmul.gated and matmul.dtype == "float32":  # the two sums of a result are in different threads
            return None
        kernels = fma_kernel if matmul.dtype == "float32" else tensor_core_kernel
        scheduled = kernels(func, matmul, gpu)
        return Schedule(with_layouts(scheduled, matmul.packed.layouts) if matmul.packed else scheduled)


class ExpertMatmul(Rule):
    """Like ``Matmul``, but each row uses the weight of its expert; see ``matmul/experts.py``."""

    def apply(self, func: PrimFunc, target: Target) -> Schedule | None:
        gpu = Gpu.of(target)
        found = match_fused_expert_matmul(func, gpu)
        if found is None or (found.matmul.gated and found.matmul.dtype == "float32"):
            return None
        return Schedule(expert_kernel(func, found, gpu))
