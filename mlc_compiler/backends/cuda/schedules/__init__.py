"""Default schedule rules for GPUs, in the order in which they are tried."""

from ....schedules.fallback import Fallback
from .elementwise import Elementwise
from .matmul import Matmul
from .rows import RowReduction

CUDA_RULES = (Matmul(), RowReduction(), Elementwise(), Fallback())
