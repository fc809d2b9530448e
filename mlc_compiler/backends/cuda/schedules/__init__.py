"""Default schedule rules for GPUs, in the order in which they are tried."""

from .elementwise import Elementwise
from .fallback import Fallback
from .matmul import Matmul
from .rows import RowReduction

CUDA_RULES = (Matmul(), RowReduction(), Elementwise(), Fallback())
