"""LLVM modules as text: types, values, and a builder of instructions.

It has what the code generators use of LLVM's assembly language, and refuses operands of wrong types; LLVM verifies the
rest.
"""

from .builder import IRBuilder
from .types import (
    ArrayType,
    BFloatType,
    DoubleType,
    FloatType,
    FunctionType,
    HalfType,
    IntType,
    LiteralStructType,
    PointerType,
    Type,
    VectorType,
    VoidType,
)
from .values import (
    Block,
    Constant,
    Function,
    GlobalVariable,
    InlineAsm,
    Module,
    Terminator,
    Undefined,
    Value,
)

__all__ = [
    "ArrayType",
    "BFloatType",
    "Block",
    "Constant",
    "DoubleType",
    "FloatType",
    "Function",
    "FunctionType",
    "GlobalVariable",
    "HalfType",
    "IRBuilder",
    "InlineAsm",
    "IntType",
    "LiteralStructType",
    "Module",
    "PointerType",
    "Terminator",
    "Type",
    "Undefined",
    "Value",
    "VectorType",
    "VoidType",
]
