"""Default schedule rules for GPUs, in the order in which they are tried."""

from .elementwise import Elementwise
from .fallback import Fallback
from .matmul import Matmul

CUDA_RULES = (Matmul(), Elementwise(), Fallback())
