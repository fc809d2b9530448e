"""The table of ATen's operators: ``"add.Tensor"``, or ``"add"`` for all overloads -> a function of its arguments.

Tensors are graph values, sizes integers or symbolic expressions, dtypes strings. A row returns a tensor, a tuple of
tensors, or a size; operators with results that are not computed return only the others. The operators' semantics is
that of https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/torch.compiler_ir.html.
"""

from __future__ import annotations

from . import elementwise, layers, pooling, reductions, resampling, scattering, searching, shapes
from .elementwise import Row

FAMILIES = (elementwise, reductions, searching, shapes, layers, pooling, resampling, scattering)
ROWS: dict[str, Row] = {name: row for family in FAMILIES for name, row in family.ROWS.items()}


def keys_of(name: str) -> tuple[str, str]:
    """The keys of ``"aten.add.Tensor"`` in the table, in order: ``"add.Tensor"``, then ``"add"``."""
    short = name.removeprefix("aten.")
    return short, short.split(".")[0]


def row_of(name: str) -> Row | None:
    """The row of ``"aten.add.Tensor"`` or ``"operator.mul"``; None for an operator without one."""
    return next((ROWS[key] for key in keys_of(name) if key in ROWS), None)
