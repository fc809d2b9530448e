"""Default schedule rules for GPUs, in the order in which they are tried."""

from ....schedules.fallback import Fallback
from .elementwise import Elementwise
from .matmul import ExpertMatmul, Matmul
from .reductions import Reduction
from .rows import RowReduction

PLAIN_RULES = (Fallback(),)
CUDA_RULES = (Matmul(), ExpertMatmul(), Reduction(), RowReduction(), Elementwise(), *PLAIN_RULES)
