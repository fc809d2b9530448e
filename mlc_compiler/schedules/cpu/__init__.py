"""Default schedule rules for CPUs, in the order in which they are tried."""

from .matmul import Matmul
from .rowwise import Elementwise, Fallback, RowReduction

CPU_RULES = (Matmul(), RowReduction(), Elementwise(), Fallback())
