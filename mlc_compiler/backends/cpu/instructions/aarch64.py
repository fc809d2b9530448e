"""Dot products of bytes on AArch64."""

from __future__ import annotations

from ....codegen import llvm_ir as ll
from ....codegen import values as v
from .dot import dot_product


def _usdot(b: ll.IRBuilder, acc: ll.Value, weights: ll.Value, four: ll.Value) -> ll.Value:
    return v.intrinsic(b, "llvm.aarch64.neon.usdot.v4i32.v16i8", [acc, weights, four], acc.type)


def _sdot(b: ll.IRBuilder, acc: ll.Value, weights: ll.Value, four: ll.Value) -> ll.Value:
    return v.intrinsic(b, "llvm.aarch64.neon.sdot.v4i32.v16i8", [acc, weights, four], acc.type)


AARCH64_DOT_PRODUCTS = (
    dot_product("dot4.neon.i8mm", 4, "i8mm", _usdot),
    dot_product("dot4.neon", 4, "dotprod", _sdot, signed=True),
)
