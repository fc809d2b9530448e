"""Default schedule rules for GPUs, in the order in which they are tried."""

from .fallback import Fallback
from .matmul import Matmul

CUDA_RULES = (Matmul(), Fallback())
