"""Error type of the verifier."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlc_errors import MLCError

from ..ir.expr import PrimExpr
from ..ir.module import GlobalVar
from ..relax.nodes import Expr, StructInfo
from ..script.printer import script
from ..tir.index_map import IndexMap
from ..tir.nodes import Buffer


class VerifyError(MLCError):
    """IR that is not well formed; ``where`` names the function, the block, and the statement or binding."""

    code = "MLC9"

    def __init__(self, message: str, function: str, at: Any = None, block: str | None = None, hint: str | None = None):
        where = [f"function {function}"]
        if block is not None:
            where.append(f"block {block}")
        if at is not None:
            where.append(script(at).strip().splitlines()[0])
        super().__init__(message, where=where, hint=hint)


PRINTABLE = (bool, int, float, str, type(None), PrimExpr, Buffer, StructInfo, Expr, GlobalVar, IndexMap)
"""Types of attribute values that print as TVMScript, besides sequences and mappings of them."""


def unknown_attribute(attrs: Any) -> str | None:
    """Describe the first attribute value that cannot be printed as TVMScript; None when all can be printed."""
    if isinstance(attrs, dict):
        items: list[Any] = [*attrs.keys(), *attrs.values()]
    elif isinstance(attrs, list | tuple):
        items = list(attrs)
    else:
        printable = isinstance(attrs, PRINTABLE) and not isinstance(attrs, np.generic)
        return None if printable else f"{type(attrs).__name__} {attrs!r}"
    return next((found for item in items if (found := unknown_attribute(item))), None)
