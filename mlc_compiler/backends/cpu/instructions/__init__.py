"""Tensor intrinsics of CPUs."""

from __future__ import annotations

from ..machine import Cpu
from .aarch64 import AARCH64_DOT_PRODUCTS
from .bfloat16 import DOT2, DOT2_PAIRS, JOIN, ROUND
from .cache import PREFETCH, PREFETCH_L2
from .dot import DotProduct
from .x86 import NIBBLES, VPDPBUSD, X86_DOT_PRODUCTS

DOT_PRODUCTS = (*X86_DOT_PRODUCTS, *AARCH64_DOT_PRODUCTS)
INSTRUCTIONS = (
    VPDPBUSD,
    NIBBLES,
    DOT2,
    DOT2_PAIRS,
    JOIN,
    ROUND,
    PREFETCH,
    PREFETCH_L2,
    *(row.intrin for row in DOT_PRODUCTS),
)


def find_dot_product(cpu: Cpu, max_weight: int, min_digit: int, steps: int) -> DotProduct | None:
    """The first dot product in the table that the CPU has, that is exact for weights in [0, max_weight] and digits from
    ``min_digit`` on, and whose steps divide those of a group; or None."""
    exact = (row for row in DOT_PRODUCTS if row.max_weight >= max_weight and row.min_digit <= min_digit)
    return next((row for row in exact if cpu.has(row.intrin.requires) and steps % row.steps == 0), None)
