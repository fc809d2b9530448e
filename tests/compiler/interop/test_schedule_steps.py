"""Steps of a schedule beside Apache TVM's: the same steps give the same function, or one that computes the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.script import tirx

from mlc_compiler import parse
from mlc_compiler.interp import run_prim_func
from mlc_compiler.ir.module import IRModule
from mlc_compiler.ir.structural import first_difference
from mlc_compiler.tir.nodes import PrimFunc
from mlc_compiler.tir.schedule import Schedule
from mlc_compiler.verifier import verify

HEADER = "@T.prim_func(s_tir=True)\n"

TRANSPOSED = """
def main(A: T.Buffer((6, 16), "int32"), B: T.Buffer((16, 6), "int32")):
    for i, j in T.grid(16, 6):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vj, vi] * 2
"""
PRODUCT = """
def main(A: T.Buffer((8, 12), "int32"), B: T.Buffer((12, 16), "int32"), C: T.Buffer((8, 16), "int32")):
    for i, j, k in T.grid(8, 16, 12):
        with T.sblock("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
CONVOLUTION = """
def main(A: T.Buffer((1, 9, 9, 3), "int32"), W: T.Buffer((3, 3, 3, 5), "int32"), C: T.Buffer((1, 4, 4, 5), "int32")):
    for n, h, w, c, y, x, r in T.grid(1, 4, 4, 5, 3, 3, 3):
        with T.sblock("C"):
            b, i, j, o, ky, kx, k = T.axis.remap("SSSSRRR", [n, h, w, c, y, x, r])
            with T.init():
                C[b, i, j, o] = 0
            C[b, i, j, o] = C[b, i, j, o] + A[b, i * 2 + ky, j * 2 + kx, o // 5 * 3 + k] * W[ky, kx, k, o]
"""
IN_PLACE = """
def main(A: T.Buffer((8,), "int32")):
    for i in range(1):
        with T.sblock("A"):
            T.reads(A[0:8])
            T.writes(A[0:8])
            for j in range(8):
                A[j] = A[j] * 3 + j
"""
PADDED = """
def main(X: T.Buffer((128,), "int32"), Y: T.Buffer((140,), "int32")):
    for i in range(140):
        with T.sblock("Y"):
            vi = T.axis.spatial(140, i)
            Y[vi] = T.if_then_else(vi >= 6 and vi < 134, X[vi - 6], 0)
"""
POOLED = """
def main(X: T.Buffer((3, 9, 9), "int32"), Y: T.Buffer((3, 9, 9), "int32")):
    P = T.sblock_alloc_buffer((3, 13, 13), "int32")
    for c, h, w in T.grid(3, 13, 13):
        with T.sblock("P"):
            vc, vh, vw = T.axis.remap("SSS", [c, h, w])
            P[vc, vh, vw] = T.if_then_else(2 <= vh and vh < 11 and 2 <= vw and vw < 11, X[vc, vh - 2, vw - 2], 7)
    for c, h, w, y, x in T.grid(3, 9, 9, 5, 5):
        with T.sblock("Y"):
            vc, vh, vw, vy, vx = T.axis.remap("SSSRR", [c, h, w, y, x])
            with T.init():
                Y[vc, vh, vw] = 0
            Y[vc, vh, vw] = Y[vc, vh, vw] + P[vc, vh + vy, vw + vx]
"""
STENCILS = """
def main(A: T.Buffer((12, 12), "int32"), C: T.Buffer((8, 8), "int32")):
    B = T.sblock_alloc_buffer((10, 10), "int32")
    for i, j, y, x in T.grid(10, 10, 3, 3):
        with T.sblock("B"):
            vi, vj, vy, vx = T.axis.remap("SSRR", [i, j, y, x])
            with T.init():
                B[vi, vj] = -1000
            B[vi, vj] = T.max(B[vi, vj], A[vi + vy, vj + vx])
    for i, j, y, x in T.grid(8, 8, 3, 3):
        with T.sblock("C"):
            vi, vj, vy, vx = T.axis.remap("SSRR", [i, j, y, x])
            with T.init():
                C[vi, vj] = -1000
            C[vi, vj] = T.max(C[vi, vj], B[vi + vy, vj + vx])
"""
CHAIN = """
def main(A: T.Buffer((26, 3), "int32"), D: T.Buffer((8, 3), "int32")):
    B = T.sblock_alloc_buffer((24, 3), "int32")
    C = T.sblock_alloc_buffer((11, 3), "int32")
    for i, j, k in T.grid(24, 3, 3):
        with T.sblock("B"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                B[vi, vj] = 0
            B[vi, vj] = B[vi, vj] + A[vi + vk, vj]
    for i, j, k in T.grid(11, 3, 4):
        with T.sblock("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0
            C[vi, vj] = C[vi, vj] + B[vi * 2 + vk, vj]
    for i, j, k in T.grid(8, 3, 4):
        with T.sblock("D"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                D[vi, vj] = 0
            D[vi, vj] = D[vi, vj] + C[vi + vk, vj]
"""

Steps = Callable[[Any], object]


def tiled(s: Any, *factors: int) -> Any:
    """The last outer loop of tiles of the two spatial loops around block C."""
    i, j, *_ = s.get_loops("C")
    (i0, i1), (j0, j1) = (s.split(loop, [None, factor]) for loop, factor in zip((i, j), factors, strict=True))
    s.reorder(i0, j0, i1, j1)
    return j0


def rolled_tiles(s: Any, *factors: int) -> None:
    s.compute_at("B", tiled(s, *factors))
    s.rolling_buffer("B", 0)


def rolled_chain(s: Any) -> None:
    rows, _ = s.split(s.get_loops("D")[0], [None, 2])
    s.compute_at("C", rows)
    s.compute_at("B", rows)
    s.rolling_buffer("C", 0)
    s.rolling_buffer("B", 0)


def padding_in_tiles(s: Any) -> None:
    c, h, w, y, x = s.get_loops("Y")
    (h0, h1), (w0, w1) = (s.split(loop, [3, 3]) for loop in (h, w))
    s.reorder(h0, w0, c, h1, w1, y, x)
    s.compute_at("P", w0)
    s.decompose_padding("P", s.get_loops("P")[2])


def fused_product(s: Any) -> None:
    s.transform_block_layout("C", lambda i, j, k: (i * 16 + j, k))


SAME: dict[str, tuple[str, Steps]] = {
    "reindex a read": (TRANSPOSED, lambda s: s.reindex("B", ("read", 0))),
    "reindex the result": (PRODUCT, lambda s: s.reindex("C", ("write", 0))),
    "reindex an operand": (PRODUCT, lambda s: s.reindex("C", "B")),
    "reindex a window": (CONVOLUTION, lambda s: s.reindex("C", "A")),
    "fuse a block": (TRANSPOSED, lambda s: s.transform_block_layout("B", lambda i, j: (i * 6 + j,))),
    "split a block": (TRANSPOSED, lambda s: s.transform_block_layout("B", lambda i, j: (i // 4, j, i % 4))),
    "turn a product": (PRODUCT, lambda s: s.transform_block_layout("C", lambda i, j, k: (k, j, i))),
    "fuse a product": (PRODUCT, fused_product),
    "padding": (PADDED, lambda s: s.decompose_padding("Y", s.get_loops("Y")[0])),
    "padding of an input": (POOLED, lambda s: s.decompose_padding("P", s.get_loops("P")[0])),
    "padding of rows": (POOLED, lambda s: s.decompose_padding("P", s.get_loops("P")[1])),
}
EQUAL: dict[str, tuple[str, Steps]] = {
    "cache in place": (IN_PLACE, lambda s: s.cache_inplace("A", 0, "local")),
    "padding in tiles": (POOLED, padding_in_tiles),
    "roll rows": (STENCILS, lambda s: rolled_tiles(s, 4, 8)),
    "roll columns": (STENCILS, lambda s: rolled_tiles(s, 8, 4)),
    "roll tiles": (STENCILS, lambda s: rolled_tiles(s, 4, 2)),
    "roll uneven tiles": (STENCILS, lambda s: rolled_tiles(s, 3, 8)),
    "roll a chain": (CHAIN, rolled_chain),
}


def both(text: str, steps: Steps) -> tuple[tvm.IRModule, PrimFunc, PrimFunc]:
    """A function after the steps in TVM, before them, and after them."""
    theirs = tvm.s_tir.Schedule(tvm.script.from_source(HEADER + text.lstrip(), {"T": tirx}))
    before = parsed(theirs.mod)
    ours = Schedule(before)
    steps(theirs)
    steps(ours)
    verify(ours.func)
    return theirs.mod, before, ours.func


def parsed(mod: tvm.IRModule) -> PrimFunc:
    found = parse(mod.script())
    func = found["main"] if isinstance(found, IRModule) else found
    assert isinstance(func, PrimFunc)
    return func


def arrays(func: PrimFunc) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(-9, 10, [s.value for s in b.shape]).astype("int32") for b in func.buffers]


@pytest.mark.parametrize("name", SAME)
def test_the_function_is_the_same(name: str) -> None:
    theirs, _, ours = both(*SAME[name])
    assert first_difference(ours, parsed(theirs)) is None


@pytest.mark.parametrize("name", [*SAME, *EQUAL])
def test_it_computes_what_tvm_computes(name: str) -> None:
    theirs, before, ours = both(*(SAME | EQUAL)[name])
    given = arrays(before)
    tensors = [tvm.runtime.tensor(a) for a in given]
    tvm.compile(theirs, target="llvm")["main"](*tensors)
    for func in (before, ours):
        own = [a.copy() for a in given]
        run_prim_func(func, *own)
        for got, expected in zip(own, tensors, strict=True):
            np.testing.assert_array_equal(got, expected.numpy())


def buffers_of(text: str) -> dict[str, list[int]]:
    return {b.name: [s.value for s in b.shape] for b in text.body.block.alloc_buffers}  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["roll rows", "roll columns", "roll tiles", "roll uneven tiles", "roll a chain"])
def test_windows_are_as_large_as_tvms(name: str) -> None:
    theirs, _, ours = both(*EQUAL[name])
    (block,) = (theirs["main"].body.block,)
    expected = {b.name: [int(s) for s in b.shape] for b in block.alloc_buffers}
    assert buffers_of(ours) == expected
