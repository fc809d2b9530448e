"""4-bit weights times 8-bit activations for ``benchmarks/matmul.py``, as a tensor expression and a schedule.

out[m, n] = sum over groups of 32 of (sum over k of (code[n, k] - 7) q[m, k]) weight_scale[n, group] act_scale[m, group]

Codes are stored with 16 rows interleaved: word ``w`` of a group holds, for each row, codes 8w .. 8w+3 in the lower and
8w+4 .. 8w+7 in the upper nibbles of its four bytes, so that one load gives the operands of two ``vpdpbusd``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlc_compiler.backends.cpu.machine import Cpu
from mlc_compiler.ir.expr import PrimExpr, Var
from mlc_compiler.target import Target
from mlc_compiler.tir import te
from mlc_compiler.tir.nodes import PrimFunc
from mlc_compiler.tir.schedule import Schedule

ROWS, GROUP, ZERO_POINT = 16, 32, 7


def definition(m: int, n: int, k: int) -> PrimFunc:
    """The matmul as a tensor function of words, weight_scale, q, act_scale, act_sum and out.

    words: uint32 [n/16, k/32, 4, 16]; weight_scale: float16 [n/16, k/32, 16]; q: int8 [m, k/32, 8, 4]; act_scale:
    float32 [m, k/32]; act_sum: int32 [m, k/32]; out: float32 [m, n/16, 16].
    """
    tiles, groups = n // ROWS, k // GROUP
    words = te.placeholder((tiles, groups, 4, ROWS), "uint32", "words")
    weight_scale = te.placeholder((tiles, groups, ROWS), "float16", "weight_scale")
    q = te.placeholder((m, groups, 8, 4), "int8", "q")
    act_scale = te.placeholder((m, groups), "float32", "act_scale")
    act_sum = te.placeholder((m, groups), "int32", "act_sum")
    dots = _dots(words, q)
    g = te.reduce_axis(groups, "g")

    def element(i: Var, t: Var, r: Var) -> PrimExpr:
        whole = dots[i, t, g, r] - act_sum[i, g] * ZERO_POINT
        return te.sum(te.f32(whole) * te.f32(weight_scale[t, g, r]) * act_scale[i, g], axis=g)

    out = te.compute((m, tiles, ROWS), element, name="out")
    return te.create_prim_func([words, weight_scale, q, act_scale, act_sum, out])


def _dots(words: te.Tensor, q: te.Tensor) -> te.Tensor:
    """The dot products of codes and activations over each group: int32 [m, n/16, k/32, 16]."""
    tiles, groups, _, _ = words.shape

    def code(t: Var, g: Var, w: Var, half: Var, r: Var, b: Var) -> PrimExpr:
        nibble = (words[t, g, w, r] >> te.cast(b * 8 + half * 4, "uint32")) & te.cast(15, "uint32")
        return te.cast(nibble, "uint8")

    codes = te.compute((tiles, groups, 4, 2, ROWS, 4), code, name="codes")
    w, half, b = te.reduce_axis(4, "w"), te.reduce_axis(2, "half"), te.reduce_axis(4, "b")

    def dot(i: Var, t: Var, g: Var, r: Var) -> PrimExpr:
        product = te.cast(codes[t, g, w, half, r, b], "int32") * te.cast(q[i, g, w * 2 + half, b], "int32")
        return te.sum(product, axis=[w, half, b])

    return te.compute((q.shape[0], tiles, groups, ROWS), dot, name="dots")


def schedule(func: PrimFunc, rows: int, target: Target) -> Schedule:
    """Tiles of ``rows`` activations by 16 weight rows in registers; VNNI instructions where the target has them."""
    s = Schedule(func)
    copy = s.cache_write("out", "local")
    i, t, r, g = s.get_loops("out")
    tile, inner = s.split(i, [None, rows])
    s.reorder(t, tile, g, inner, r)
    s.vectorize(r)
    s.unroll(inner)
    s.reverse_compute_at(copy, tile)
    for block in (s.decompose_reduction("out", g), copy):
        _unroll_then_vectorize(s, block)
    _in_registers(s, g, use_vnni=Cpu.of(target).has("avx512vnni"))
    s.parallel(t)
    return s


def _in_registers(s: Schedule, group: Var, use_vnni: bool) -> None:
    s.compute_at("dots", group)
    *rows, r, w, half, b = s.get_loops("dots")[3:]
    s.reorder(w, half, *rows, r, b)
    _unroll_then_vectorize(s, s.decompose_reduction("dots", w))
    s.compute_at("codes", half)
    if use_vnni:
        s.tensorize(s.get_loops("codes")[-2], "avx512.nibbles")
        s.tensorize(r, "avx512.vpdpbusd")
    else:
        s.reorder(b, r)
        s.unroll(b)
        s.vectorize(r)
    for loop in (*rows, half, w):
        s.unroll(loop)


def _unroll_then_vectorize(s: Schedule, block: str) -> None:
    *outer, lane = s.get_loops(block)[-2:]
    for loop in outer:
        if isinstance(s.extent(loop), int) and loop.name.startswith(("inner", "ax", "i_1")):
            s.unroll(loop)
    s.vectorize(lane)


@dataclass(frozen=True)
class Operands:
    """Random operands in the layout of :func:`definition`, and the result in float64."""

    arrays: tuple[np.ndarray, ...]
    out: np.ndarray

    @property
    def weight_bytes(self) -> int:
        return self.arrays[0].nbytes + self.arrays[1].nbytes


def operands(m: int, n: int, k: int, seed: int = 0) -> Operands:
    """Operands for ``definition(m, n, k)`` with a zeroed result."""
    rng = np.random.default_rng(seed)
    tiles, groups = n // ROWS, k // GROUP
    words = rng.integers(0, 2**32, (tiles, groups, 4, ROWS), dtype=np.uint32)
    scale = rng.random((tiles, groups, ROWS)).astype(np.float16)
    q = rng.integers(-127, 128, (m, groups, 8, 4)).astype(np.int8)
    act_scale = rng.random((m, groups)).astype(np.float32)
    act_sum = q.astype(np.int32).sum(axis=(2, 3)).astype(np.int32)
    return Operands((words, scale, q, act_scale, act_sum), np.zeros((m, tiles, ROWS), np.float32))


def reference(ops: Operands) -> np.ndarray:
    """The result of :func:`definition` in float64."""
    words, scale, q, act_scale, _ = ops.arrays
    nibbles = [(words >> np.uint32(8 * b + 4 * h)) & 15 for h in (0, 1) for b in range(4)]
    codes = np.stack(nibbles, -1).astype(np.float64) - ZERO_POINT  # [tile, group, word, row, 8]
    weights = codes * scale[:, :, None, :, None].astype(np.float64)
    x = q.reshape(*q.shape[:2], 4, 8) * act_scale[..., None, None].astype(np.float64)
    return np.einsum("igwc,tgwrc->itr", x, weights, optimize=True)
