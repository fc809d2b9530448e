"""Default schedule rules for CPUs, in the order in which they are tried."""

from ....schedules.fallback import Fallback
from .bfloat16_matmul import Bfloat16Matmul
from .column_chain import ColumnChain
from .column_reduction import ColumnReduction
from .convolution import Convolution
from .expert_matmul import ExpertMatmul
from .matmul import Matmul
from .quantized_matmul import QuantizedMatmul
from .rowwise import Elementwise, RowReduction
from .single_column import SingleColumn
from .whole_reduction import WholeReduction
from .wide_reduction import WideReduction

CPU_RULES = (
    QuantizedMatmul(),
    Bfloat16Matmul(),
    SingleColumn(),
    Matmul(),
    Convolution(),
    ExpertMatmul(),
    WholeReduction(),
    ColumnReduction(),
    ColumnChain(),
    WideReduction(),
    RowReduction(),
    Elementwise(),
    Fallback(),
)
