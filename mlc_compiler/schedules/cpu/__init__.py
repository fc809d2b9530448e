"""Default schedule rules for CPUs, in the order in which they are tried."""

from .fixed_point_schedule import FixedPointProduct
from .matmul import Matmul
from .rowwise import Elementwise, Fallback, RowReduction

CPU_RULES = (FixedPointProduct(), Matmul(), RowReduction(), Elementwise(), Fallback())
