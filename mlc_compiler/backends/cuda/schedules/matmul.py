"""Schedule of matrix products."""

from __future__ import annotations

from ....schedules.rule import Rule
from ....target import Target
from ....tir.nodes import PrimFunc
from ....tir.schedule import Schedule
from ..machine import Gpu
from ..matmul.few_rows import fits_few_rows
from ..matmul.kernel import tensor_core_product
from ..matmul.product import match_product


class Matmul(Rule):
    """``epilogue(x @ w)`` of 16-bit activations with a stored or a dequantized weight, on tensor cores.

    ``matmul/kernel.py`` has the algorithm. Rows may be symbolic; columns and depth are constants of any size.
    """

    def apply(self, func: PrimFunc, target: Target) -> Schedule | None:
        product = match_product(func)
        if product is None or (product.statistics and not fits_few_rows(product)):
            return None
        return Schedule(tensor_core_product(func, product, Gpu.of(target)))
