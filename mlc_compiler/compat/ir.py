"""``tvm.ir``: modules."""

from __future__ import annotations

from ..ir.module import GlobalVar, IRModule

__all__ = ["GlobalVar", "IRModule"]
