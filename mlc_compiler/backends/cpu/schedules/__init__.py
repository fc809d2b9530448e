"""Default schedule rules for CPUs, in the order in which they are tried."""

from ....schedules.fallback import Fallback
from .column_reduction import ColumnReduction
from .convolution import Convolution
from .expert_product import ExpertProduct
from .matmul import Matmul
from .pair_product import PairProduct
from .quantized_product import QuantizedProduct
from .rowwise import Elementwise, RowReduction
from .wide_reduction import WideReduction

CPU_RULES = (
    QuantizedProduct(),
    PairProduct(),
    Matmul(),
    Convolution(),
    ExpertProduct(),
    ColumnReduction(),
    WideReduction(),
    RowReduction(),
    Elementwise(),
    Fallback(),
)
