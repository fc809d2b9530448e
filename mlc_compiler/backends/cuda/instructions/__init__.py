"""Tensor intrinsics of NVIDIA GPUs."""

from __future__ import annotations

from .control import CONTROL
from .copies import COPIES
from .dequantize import DEQUANTIZE
from .dequantize_fp8 import DEQUANTIZE_FLOAT8
from .loads import LOADS
from .matrix import MATRIX_INSTRUCTIONS
from .scalar import SCALAR_INSTRUCTIONS
from .tiles import TILE_INSTRUCTIONS
from .warp import WARP_INSTRUCTIONS
from .wgmma import WGMMA
from .widening import WIDENING

INSTRUCTIONS = (
    *WARP_INSTRUCTIONS,
    *MATRIX_INSTRUCTIONS,
    *TILE_INSTRUCTIONS,
    *COPIES,
    *LOADS,
    *CONTROL,
    *SCALAR_INSTRUCTIONS,
    *DEQUANTIZE,
    *DEQUANTIZE_FLOAT8,
    *WGMMA,
    *WIDENING,
)
