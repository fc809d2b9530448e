"""Default schedule rules for CPUs, in the order in which they are tried."""

from .bfloat16_pairs import PairsOfBfloat16
from .matmul import Matmul
from .rowwise import Elementwise, Fallback, RowReduction

CPU_RULES = (PairsOfBfloat16(), Matmul(), RowReduction(), Elementwise(), Fallback())
