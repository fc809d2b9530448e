"""The table of ONNX's operators (opset 13 to 23) on tensors: https://onnx.ai/onnx/operators.

Rows take inputs in order, None for an omitted one, and attributes by name. Inputs that must be known at
import, such as shapes and axes, are numpy arrays. A row returns its results in order; those that the node does not have
are dropped.
"""

from __future__ import annotations

from typing import Any

from ...relax import ops
from ...relax.info import shape_of
from ...relax.nodes import Expr
from .. import blocks
from .arrays import Row, numbers
from .attention import attention
from .einsum import einsum
from .elementwise import ELEMENTWISE
from .indexing import INDEXING
from .normalizations import NORMALIZATIONS
from .quantization import QUANTIZATION
from .recurrent import RECURRENT
from .reductions import REDUCTIONS
from .shapes import SHAPES
from .windows import WINDOWS


def _gemm(
    a: Expr, b: Expr, c: Expr | None = None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0
) -> Expr:
    a = ops.permute_dims(a) if transA else a
    product = ops.linear(a, b) if transB else ops.matmul(a, b)
    product = product if alpha == 1.0 else ops.multiply(product, alpha)
    if c is None:
        return product
    return ops.add(product, c if beta == 1.0 else ops.multiply(c, beta))


def _dropout(x: Expr, ratio: Any = None, training: Any = None, *, seed: int | None = None) -> tuple[Expr, Expr]:
    if training is not None and any(numbers(training)):
        raise ValueError("training_mode: got True; expected False")
    return x, blocks.filled(shape_of(x), True, "bool")


def _grid_sample(
    x: Expr, grid: Expr, *, mode: bytes = b"linear", padding_mode: bytes = b"zeros", align_corners: int = 0
) -> Expr:
    method = "bilinear" if mode == b"linear" else mode.decode()
    return ops.grid_sample(
        x, grid, method=method, padding_mode=padding_mode.decode(), align_corners=bool(align_corners)
    )


ROWS: dict[str, Row] = {
    **ELEMENTWISE,
    **INDEXING,
    **NORMALIZATIONS,
    **QUANTIZATION,
    **RECURRENT,
    **REDUCTIONS,
    **SHAPES,
    **WINDOWS,
    "Attention": attention,
    "Dropout": _dropout,
    "Einsum": einsum,
    "Gemm": _gemm,
    "GridSample": _grid_sample,
    "MatMul": ops.matmul,
}
KNOWN_INPUTS = {
    "ConstantOfShape": (0,),
    "CumSum": (1,),
    "Dropout": (1, 2),
    "Expand": (1,),
    "MaxUnpool": (2,),
    "OneHot": (1,),
    "Pad": (1, 2, 3),
    "Range": (0, 1, 2),
    **{name: (1,) for name in ROWS if name.startswith("Reduce")},
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
}
"""Positions of the inputs that must be known at import."""
