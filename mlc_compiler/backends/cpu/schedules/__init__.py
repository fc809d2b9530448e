"""Default schedule rules for CPUs, in the order in which they are tried."""

from ....schedules.fallback import Fallback
from .expert_product import ExpertProduct
from .matmul import Matmul
from .quantized_product import QuantizedProduct
from .rowwise import Elementwise, RowReduction

CPU_RULES = (QuantizedProduct(), Matmul(), ExpertProduct(), RowReduction(), Elementwise(), Fallback())
