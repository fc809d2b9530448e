"""Schedules of matmuls."""

from __future__ import annotations

from ....schedules.rule import Rule
from ....target import Target
from ....tir.nodes import PrimFunc
from ....tir.schedule import Schedule
from ..machine import Gpu
from ..matmul.experts import expert_product, match_expert_product
from ..matmul.few_rows import has_statistics_kernel
from ..matmul.fma import fma_product
from ..matmul.product import match_product
from ..matmul.tensor_cores import tensor_core_product
from ..matmul.weight_layouts import with_layouts


class Matmul(Rule):
    """``epilogue(x @ w)`` with a stored or a dequantized weight; on tensor cores for activations of 16 bits.

    ``matmul/tensor_cores.py`` and ``matmul/fma.py`` have the algorithms. Rows may be symbolic; columns and depth are
    constants of any size.
    """

    def apply(self, func: PrimFunc, target: Target) -> Schedule | None:
        gpu = Gpu.of(target)
        product = match_product(func, gpu)
        if product is None or (product.statistics and not has_statistics_kernel(product)):
            return None
        if product.gated and product.dtype == "float32":  # the two sums of a result are in different threads
            return None
        kernels = fma_product if product.dtype == "float32" else tensor_core_product
        scheduled = kernels(func, product, gpu)
        return Schedule(with_layouts(scheduled, product.packed.layouts) if product.packed else scheduled)


class ExpertMatmul(Rule):
    """Like ``Matmul``, but each row uses the weight of its expert; see ``matmul/experts.py``."""

    def apply(self, func: PrimFunc, target: Target) -> Schedule | None:
        gpu = Gpu.of(target)
        found = match_expert_product(func, gpu)
        if found is None or (found.product.gated and found.product.dtype == "float32"):
            return None
        return Schedule(expert_product(func, found, gpu))
