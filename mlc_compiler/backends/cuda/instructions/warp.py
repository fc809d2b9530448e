"""Instructions that exchange values between the 32 lanes of a warp (PTX ISA: shfl.sync, redux.sync, vote.sync)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ....codegen import llvm_ir as ll
from ....codegen.instructions import Operands
from ....codegen.values import F32, I32, i32
from ....ir.expr import PrimExpr, Var
from ....tir import te
from ....tir.intrinsics import Operand, TensorIntrin
from .control import as_i32
from .nvvm import FULL_WARP, emit
from .operands import SHORT, load, store

LANES = 32

SourceLane = Callable[[PrimExpr, PrimExpr], PrimExpr]
"""The lane that lane ``l`` reads, given the instruction's scalar ``m``."""


def one_per_lane(name: str, dtype: str) -> Operand:
    """An operand of one element in the registers of each lane."""
    return Operand(name, (LANES, 1), dtype, per_lane=True, scope="local")


def shuffle_row(mode: str, dtype: str, source: SourceLane) -> TensorIntrin:
    """``out[l] = value[source(l, m)]`` with one scalar ``m`` for all lanes."""

    def semantics(value: te.Tensor, m: Var) -> te.Tensor:
        return te.compute((LANES, 1), lambda lane, i: value[source(lane, m), i], name="out")

    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        register, suffix = (F32, "f32") if dtype == "float32" else (I32, "i32")
        values = load(b, row, operands, 1, register)
        m = as_i32(b, operands.scalars["m"])
        clamp = i32(0 if mode == "up" else LANES - 1)
        name = f"llvm.nvvm.shfl.sync.{'bfly' if mode == 'xor' else mode}.{suffix}"
        store(b, row, operands, [emit(b, name, [FULL_WARP, value, m, clamp]) for value in values])

    places = (one_per_lane("out", dtype), one_per_lane("value", dtype))
    name = f"cuda.shfl.{mode}.{SHORT[dtype]}"
    return TensorIntrin(name, places, semantics, {"cuda": code}, "sm_70", scalars=("m",), lanes=LANES)


_SOURCES: Mapping[str, SourceLane] = {
    "xor": lambda lane, m: lane ^ m,
    "down": lambda lane, m: te.select(lane + m < LANES, lane + m, lane),
    "up": lambda lane, m: te.select(lane - m >= 0, lane - m, lane),
    "idx": lambda lane, m: m % LANES,
}


def reduction_row(kind: str, dtype: str, reduce: Callable[..., PrimExpr]) -> TensorIntrin:
    """``out[l]`` is the reduction of all lanes' 32-bit integers, the same in every lane."""

    def semantics(value: te.Tensor) -> te.Tensor:
        k = te.reduce_axis(LANES, "k")
        return te.compute((LANES, 1), lambda lane, i: reduce(value[k, i], axis=k), name="out")

    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        (value,) = load(b, row, operands, 1)
        prefix = "u" if dtype == "uint32" and kind != "add" else ""
        store(b, row, operands, [emit(b, f"llvm.nvvm.redux.sync.{prefix}{kind}", [value, FULL_WARP])])

    places = (one_per_lane("out", dtype), one_per_lane("value", dtype))
    return TensorIntrin(f"cuda.redux.{kind}.{SHORT[dtype]}", places, semantics, {"cuda": code}, "sm_80", lanes=LANES)


def _ballot(value: te.Tensor) -> te.Tensor:
    k = te.reduce_axis(LANES, "k")

    def bit(lane: Var, i: Var) -> PrimExpr:
        one = te.const(1, "uint32") << te.cast(k, "uint32")
        return te.sum(te.select(value[k, i] != 0, one, te.const(0, "uint32")), axis=k)

    return te.compute((LANES, 1), bit, name="out")


def _emit_ballot(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
    (value,) = load(b, row, operands, 1)
    store(b, row, operands, [emit(b, "llvm.nvvm.vote.ballot.sync", [FULL_WARP, b.icmp_unsigned("!=", value, i32(0))])])


BALLOT = TensorIntrin(
    "cuda.vote.ballot",
    (one_per_lane("out", "uint32"), one_per_lane("value", "int32")),
    _ballot,
    {"cuda": _emit_ballot},
    "sm_70",
    lanes=LANES,
)
"""Bit ``l`` of the result tells whether the value of lane ``l`` is not 0; the same in every lane."""


def _rows() -> Iterator[TensorIntrin]:
    for mode, source in _SOURCES.items():
        for dtype in ("float32", "int32", "uint32"):
            yield shuffle_row(mode, dtype, source)
    for dtype in ("int32", "uint32"):
        for kind, reduce in (("add", te.sum), ("min", te.min), ("max", te.max)):
            yield reduction_row(kind, dtype, reduce)
    yield BALLOT


WARP_INSTRUCTIONS = tuple(_rows())
