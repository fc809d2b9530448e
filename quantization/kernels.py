"""Group quantization kernels, compiled by this compiler: maximum magnitude, scale and codes of a group in one pass.

Arithmetic and rounding are those of ``group``, so that results are bit-identical; numpy packs the codes into words.
The kernels are about ten times as fast as numpy, and compile in 30 ms.
"""

# The bodies are TVMScript, parsed from source; they do not type-check as Python.
# mypy: ignore-errors

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from mlc_compiler.script import T
from mlc_compiler.target import Target
from mlc_compiler.tir.byte_scales import rounded_value
from mlc_compiler.tir.nodes import PrimFunc
from mlc_errors import UnsupportedError
from quantization.schemes import Scheme

if TYPE_CHECKING:
    from quantization.jit import CompiledFunction

LANES = (16, 8)
SOURCES = ("float16", "bfloat16", "float32")
INFINITY_BITS = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000}
BITS = {"float16": "uint16", "bfloat16": "uint16", "float32": "uint32"}
SIGN_LESS = {"uint16": 0x7FFF, "uint32": 0x7FFFFFFF}
ROUNDING = 2.0**23  # adding it to a small float32 rounds to the nearest integer, in the lowest bits
LOWEST_GAIN = -3.0e38  # below every gain
ROW_LANES = 64  # rows of a weight that ``feedback_kernel`` rounds together, in several vectors
PART = 32  # columns whose errors are subtracted from later ones together
_compiling = threading.Lock()


def encode_kernel(scheme: Scheme, source: str, layout: str) -> CompiledFunction | None:
    """A kernel (weights [n, group], codes uint8 [n, group], scales [n], bits of the maximum magnitudes [n], n).

    source: dtype of the weights. None for unsupported dtypes or CPUs.
    """
    if scheme.kind != "group" or source not in SOURCES:
        return None
    unrounded = scheme.model_dtype == "bfloat16" and layout == "KN"
    return _compiled(_encode, scheme, source, unrounded)


def search_kernel(scheme: Scheme, source: str, tries: int) -> CompiledFunction | None:
    """As ``encode_kernel``, with searched scales.

    Before the sizes n and m, the kernel takes four float32 arrays: candidate levels [tries] of the largest weight,
    levels of the scheme, midpoints between them, and importances [m, group].
    """
    return _compiled(_search, scheme, source, tries) if source in SOURCES else None


def feedback_kernel(scheme: Scheme) -> CompiledFunction | None:
    """A kernel that rounds the rows of a weight with error feedback, as ``error_feedback`` does.

    Takes weights float32 [tiles, k, ROW_LANES], which it overwrites, scales float32 [tiles, groups, ROW_LANES], the
    group of each column int32 [k], the transposed factor float32 [k, k], levels of the scheme and midpoints between
    them, codes uint8 [tiles, k, ROW_LANES], then the sizes tiles, k and groups. None for unsupported CPUs.
    """
    return _compiled(_feedback, 1 << scheme.bits)


def _compiled(build: Callable[..., PrimFunc], *arguments: Any) -> CompiledFunction | None:
    with _compiling:
        return _compile_once(build, *arguments)


@cache
def _compile_once(build: Callable[..., PrimFunc], *arguments: Any) -> CompiledFunction | None:
    from quantization.jit import CompiledFunction  # code generation takes 0.2 s to import

    try:
        return CompiledFunction(build(*arguments), Target("cpu"))
    except UnsupportedError:
        return None


def _encode(scheme: Scheme, source: str, unrounded: bool) -> PrimFunc:
    """The tensor function of ``encode_kernel``. unrounded: divide by the scale as it is before rounding."""
    dtype, group = scheme.model_dtype, scheme.group
    step = "float16" if (dtype, scheme.rounding) == ("float16", "model") else "float32"
    divisor = "float32" if unrounded else dtype
    bits, sign_less = BITS[dtype], SIGN_LESS[BITS[dtype]]
    zero_point, max_code = float(scheme.zero_point), float(scheme.max_code)
    lanes = next(count for count in LANES if group % count == 0)
    chunks = group // lanes

    @T.prim_func(private=True)
    def encode(var_weights: T.handle, var_codes: T.handle, var_scales: T.handle, var_largest: T.handle):
        T.func_attr({"tir.noalias": True})
        n = T.int64()
        weights = T.match_buffer(var_weights, (n, group), source)
        codes = T.match_buffer(var_codes, (n, group), "uint8")
        scales = T.match_buffer(var_scales, (n,), dtype)
        largest = T.match_buffer(var_largest, (n,), bits)
        top = T.alloc_buffer((16,), bits, scope="local")
        for g in range(n):
            for lane in T.vectorized(16):
                top[lane] = T.Cast(bits, 0)
            for chunk in range(chunks):
                for lane in T.vectorized(lanes):
                    value = T.reinterpret(bits, T.Cast(dtype, weights[g, chunk * lanes + lane]))
                    top[lane] = T.max(top[lane], value & T.Cast(bits, sign_less))
            for lane in T.vectorized(8):
                top[lane] = T.max(top[lane], top[lane + 8])
            for lane in T.vectorized(4):
                top[lane] = T.max(top[lane], top[lane + 4])
            for lane in T.vectorized(2):
                top[lane] = T.max(top[lane], top[lane + 2])
            largest[g] = T.max(top[0], top[1])
            scale = T.Cast("float32", T.reinterpret(dtype, largest[g])) / T.float32(zero_point)
            scales[g] = T.Cast(dtype, scale)
            for chunk in range(chunks):
                for lane in T.vectorized(lanes):
                    weight = T.Cast("float32", T.Cast(dtype, weights[g, chunk * lanes + lane]))
                    quotient = T.Cast(step, weight / T.Cast("float32", T.Cast(divisor, scale)))
                    shifted = T.Cast(step, T.Cast("float32", quotient) + T.float32(zero_point))
                    code = T.min(T.max(T.Cast("float32", shifted), T.float32(0)), T.float32(max_code))
                    codes[g, chunk * lanes + lane] = T.Cast(
                        "uint8", T.reinterpret("uint32", code + T.float32(ROUNDING))
                    )

    return encode


def _search(scheme: Scheme, source: str, tries: int) -> PrimFunc:
    """The tensor function of ``search_kernel``; the same algorithm as ``scale_search.search``.

    Try 0 divides by the plain scale, the last one by the best scale so far. tries: number of candidate levels of the
    largest weight. levels, middles: of the scheme. importance: row g modulo m is that of group g.
    """
    group, count = scheme.group, 1 << scheme.bits
    plain_level, half, rounds = scheme.plain_level, group // 2, scheme.byte_scales
    width = max(half, 16)  # of sums, beyond ``half`` zeros

    @T.prim_func(private=True)
    def encode(
        var_weights: T.handle,
        var_codes: T.handle,
        var_scales: T.handle,
        var_largest: T.handle,
        var_tried: T.handle,
        var_levels: T.handle,
        var_middles: T.handle,
        var_importance: T.handle,
    ):
        T.func_attr({"tir.noalias": True})
        n = T.int64()
        m = T.int64()
        weights = T.match_buffer(var_weights, (n, group), source)
        codes = T.match_buffer(var_codes, (n, group), "uint8")
        scales = T.match_buffer(var_scales, (n,), "float16")
        largest = T.match_buffer(var_largest, (n,), "uint16")
        tried = T.match_buffer(var_tried, (tries,), "float32")
        levels = T.match_buffer(var_levels, (count,), "float32")
        middles = T.match_buffer(var_middles, (count - 1,), "float32")
        importance = T.match_buffer(var_importance, (m, group), "float32")
        wide = T.alloc_buffer((group,), "float32", scope="local")
        top = T.alloc_buffer((width,), "float32", scope="local")
        bottom = T.alloc_buffer((width,), "float32", scope="local")
        quotient = T.alloc_buffer((group,), "float32", scope="local")
        level = T.alloc_buffer((group,), "float32", scope="local")
        product = T.alloc_buffer((group,), "float32", scope="local")
        products = T.alloc_buffer((width,), "float32", scope="local")
        square = T.alloc_buffer((group,), "float32", scope="local")
        squares = T.alloc_buffer((width,), "float32", scope="local")
        code = T.alloc_buffer((group,), "int32", scope="local")
        divisor = T.alloc_buffer((2,), "float32", scope="local")
        scale = T.alloc_buffer((2,), "float32", scope="local")
        gain = T.alloc_buffer((2,), "float32", scope="local")
        for g in range(n):
            for lane in T.vectorized(group):
                wide[lane] = T.Cast("float32", T.Cast("float16", weights[g, lane]))
            for lane in T.vectorized(width):
                top[lane] = T.max(wide[lane % half], wide[lane % half + half])
                bottom[lane] = T.min(wide[lane % half], wide[lane % half + half])
            for lane in T.vectorized(8):
                top[lane] = T.max(top[lane], top[lane + 8])
                bottom[lane] = T.min(bottom[lane], bottom[lane + 8])
            for lane in T.vectorized(4):
                top[lane] = T.max(top[lane], top[lane + 4])
                bottom[lane] = T.min(bottom[lane], bottom[lane + 4])
            for lane in T.vectorized(2):
                top[lane] = T.max(top[lane], top[lane + 2])
                bottom[lane] = T.min(bottom[lane], bottom[lane + 2])
            top[0] = T.max(top[0], top[1])
            bottom[0] = T.min(bottom[0], bottom[1])
            top[1] = T.max(top[0], T.float32(0) - bottom[0])
            bottom[1] = T.Select(top[0] == top[1], top[1], T.float32(0) - top[1])
            largest[g] = T.reinterpret("uint16", T.Cast("float16", top[1]))
            for lane in T.vectorized(width):
                products[lane] = T.float32(0)
                squares[lane] = T.float32(0)
            gain[0] = T.float32(LOWEST_GAIN)
            scale[0] = T.float32(0)
            divisor[0] = T.float32(0)
            for t in range(tries + 2):
                divisor[1] = scale[0]
                if t == 0:
                    divisor[1] = top[1] / T.float32(plain_level)
                if (t > 0) and (t < tries + 1):
                    divisor[1] = bottom[1] / tried[t - 1]
                divisor[1] = T.Cast("float32", T.Cast("float16", divisor[1]))
                for lane in T.vectorized(group):
                    quotient[lane] = wide[lane] / divisor[1]
                    level[lane] = levels[0]
                for step in range(count - 1):
                    for lane in T.vectorized(group):
                        level[lane] = T.Select(quotient[lane] > middles[step], levels[step + 1], level[lane])
                for lane in T.vectorized(group):
                    product[lane] = (wide[lane] * importance[g % m, lane]) * level[lane]
                    square[lane] = importance[g % m, lane] * (level[lane] * level[lane])
                for lane in T.vectorized(half):
                    products[lane] = product[lane] + product[lane + half]
                    squares[lane] = square[lane] + square[lane + half]
                for lane in T.vectorized(8):
                    products[lane] = products[lane] + products[lane + 8]
                    squares[lane] = squares[lane] + squares[lane + 8]
                for lane in T.vectorized(4):
                    products[lane] = products[lane] + products[lane + 4]
                    squares[lane] = squares[lane] + squares[lane + 4]
                for lane in T.vectorized(2):
                    products[lane] = products[lane] + products[lane + 2]
                    squares[lane] = squares[lane] + squares[lane + 2]
                products[0] = products[0] + products[1]
                squares[0] = squares[0] + squares[1]
                scale[1] = divisor[1]
                if t > 0:
                    scale[1] = T.Cast("float32", T.Cast("float16", products[0] / squares[0]))
                if rounds:
                    scale[1] = T.Cast("float32", rounded_value(T.Cast("float16", scale[1])))
                gain[1] = scale[1] * (T.float32(2) * products[0] - scale[1] * squares[0])
                if gain[1] > gain[0]:
                    gain[0] = gain[1]
                    scale[0] = scale[1]
                    divisor[0] = divisor[1]
            scales[g] = T.Cast("float16", scale[0])
            for lane in T.vectorized(group):
                quotient[lane] = wide[lane] / divisor[0]
                code[lane] = 0
            for step in range(count - 1):
                for lane in T.vectorized(group):
                    code[lane] = T.Select(quotient[lane] > middles[step], step + 1, code[lane])
            for lane in T.vectorized(group):
                codes[g, lane] = T.Cast("uint8", code[lane])

    return encode


def _feedback(count: int) -> PrimFunc:
    """The tensor function of ``feedback_kernel``. count: of levels."""
    lanes, most = ROW_LANES, PART

    @T.prim_func(private=True)
    def feedback(
        var_weights: T.handle,
        var_scales: T.handle,
        var_group_of: T.handle,
        var_factor: T.handle,
        var_levels: T.handle,
        var_middles: T.handle,
        var_codes: T.handle,
    ):
        T.func_attr({"tir.noalias": True})
        tiles = T.int64()
        k = T.int64()
        groups = T.int64()
        weights = T.match_buffer(var_weights, (tiles, k, lanes), "float32")
        scales = T.match_buffer(var_scales, (tiles, groups, lanes), "float32")
        group_of = T.match_buffer(var_group_of, (k,), "int32")
        factor = T.match_buffer(var_factor, (k, k), "float32")
        levels = T.match_buffer(var_levels, (count,), "float32")
        middles = T.match_buffer(var_middles, (count - 1,), "float32")
        codes = T.match_buffer(var_codes, (tiles, k, lanes), "uint8")
        quotient = T.alloc_buffer((lanes,), "float32", scope="local")
        level = T.alloc_buffer((lanes,), "float32", scope="local")
        code = T.alloc_buffer((lanes,), "int32", scope="local")
        errors = T.alloc_buffer((most, lanes), "float32", scope="local")
        left = T.alloc_buffer((lanes,), "float32", scope="local")
        for tile in range(tiles):
            for part in range((k + (most - 1)) // most):
                first = part * most
                steps = T.min(T.int64(most), k - first)
                for step in range(steps):
                    now = first + step
                    group = T.Cast("int64", group_of[now])
                    for lane in T.vectorized(lanes):
                        scale = scales[tile, group, lane]
                        inverse = T.Select(scale == T.float32(0), scale, T.float32(1) / scale)
                        quotient[lane] = weights[tile, now, lane] * inverse
                        level[lane] = levels[0]
                        code[lane] = 0
                    for higher in range(count - 1):
                        for lane in T.vectorized(lanes):
                            level[lane] = T.Select(quotient[lane] > middles[higher], levels[higher + 1], level[lane])
                            code[lane] = T.Select(quotient[lane] > middles[higher], higher + 1, code[lane])
                    for lane in T.vectorized(lanes):
                        lost = weights[tile, now, lane] - level[lane] * scales[tile, group, lane]
                        codes[tile, now, lane] = T.Cast("uint8", code[lane])
                        errors[step, lane] = lost / factor[now, now]
                    for later in range(steps - step - 1):
                        for lane in T.vectorized(lanes):
                            weights[tile, now + 1 + later, lane] = (
                                weights[tile, now + 1 + later, lane] - factor[now + 1 + later, now] * errors[step, lane]
                            )
                for later in range(k - first - steps):
                    for lane in T.vectorized(lanes):
                        left[lane] = weights[tile, first + most + later, lane]
                    for step in range(most):
                        for lane in T.vectorized(lanes):
                            left[lane] = left[lane] - factor[first + most + later, first + step] * errors[step, lane]
                    for lane in T.vectorized(lanes):
                        weights[tile, first + most + later, lane] = left[lane]

    return feedback
