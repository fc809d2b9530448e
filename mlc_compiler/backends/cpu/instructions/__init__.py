"""Instructions of CPUs that schedules use by name."""

from __future__ import annotations

from ..machine import Cpu
from .aarch64 import AARCH64_DOT_PRODUCTS
from .dot import DotProduct
from .x86 import NIBBLES, VPDPBUSD, X86_DOT_PRODUCTS

DOT_PRODUCTS = (*X86_DOT_PRODUCTS, *AARCH64_DOT_PRODUCTS)
INSTRUCTIONS = (VPDPBUSD, NIBBLES, *(row.intrin for row in DOT_PRODUCTS))


def find_dot_product(cpu: Cpu, most: int) -> DotProduct | None:
    """The best dot product of a CPU for weights from 0 to ``most``; None when it has none."""
    return next((row for row in DOT_PRODUCTS if cpu.has(row.intrin.requires) and row.most >= most), None)
