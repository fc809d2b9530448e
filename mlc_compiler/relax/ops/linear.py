"""Matrix multiplication and dequantization. Sums are at least float32 for floating dtypes."""

from __future__ import annotations

from collections.abc import Callable

from ...ir import dtype as dt
from ...ir.expr import PrimExpr, const, is_const
from ...tir import te
from ...tir.byte_scales import scale_value
from ...tir.code_words import CodeWords
from ..info import show_shape
from .registry import operator


def sum_type(dtype: str) -> str:
    return "float32" if dt.is_float(dtype) and dt.bits(dtype) < 32 else dtype


def narrowed(total: te.Tensor, dtype: str) -> te.Tensor:
    return total if total.dtype == dtype else te.elementwise("cast", lambda value: te.cast(value, dtype), total)


@operator("linear")
def linear(x: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None) -> te.Tensor:
    """``x @ weight.T + bias``.

    x: [..., K]; weight: [N, K] and bias: [N] of any floating dtype, converted elementwise. Returns [..., N] in x's
    dtype; sums are at least float32.
    """
    shapes = f"{show_shape(x.shape)} and {show_shape(weight.shape)}"
    if x.ndim < 1 or weight.ndim != 2:
        raise ValueError(f"got shapes {shapes}; expected [..., K] and [N, K]")
    te.require_equal(x.shape[-1], weight.shape[1], f"inner sizes of {shapes}")
    k = te.reduce_axis(x.shape[-1], "k")
    acc = sum_type(x.dtype)

    def dot(*i: PrimExpr) -> PrimExpr:
        return te.sum(te.cast(x[(*i[:-1], k)], acc) * te.cast(weight[i[-1], k], acc), axis=k)

    total = te.compute((*x.shape[:-1], weight.shape[0]), dot, name="matmul")
    if bias is not None:
        total = te.elementwise("add_bias", lambda t, b: t + te.cast(b, acc), total, bias)
    return narrowed(total, x.dtype)


@operator("matmul")
def matmul(x1: te.Tensor, x2: te.Tensor, *, out_dtype: str = "void") -> te.Tensor:
    """``x1 @ x2`` as in numpy: [..., M, K] x [..., K, N], leading axes broadcast; either may be a vector.

    ``out_dtype`` "void" selects the common dtype of the operands; sums are at least float32.
    """
    result = dt.promote(x1.dtype, x2.dtype) if out_dtype in ("void", "") else out_dtype
    acc = sum_type(result)
    if not (x1.ndim and x2.ndim):
        raise ValueError(
            f"got shapes {show_shape(x1.shape)} and {show_shape(x2.shape)}; expected at least one axis each"
        )
    vector1, vector2 = x1.ndim == 1, x2.ndim == 1
    inner = x2.shape[0] if vector2 else x2.shape[-2]
    te.require_equal(x1.shape[-1], inner, f"inner sizes of {show_shape(x1.shape)} and {show_shape(x2.shape)}")
    k = te.reduce_axis(x1.shape[-1], "k")
    batch1, batch2 = x1.shape[:-2], x2.shape[:-2]
    batch = te.broadcast_shape([batch1, batch2])
    rows = () if vector1 else (x1.shape[-2],)
    columns = () if vector2 else (x2.shape[-1],)

    def dot(*i: PrimExpr) -> PrimExpr:
        lead, row, column = i[: len(batch)], i[len(batch) : len(i) - len(columns)], i[len(i) - len(columns) :]
        a = x1[(*te.broadcast_index(batch1, lead), *row, k)]
        b = x2[(*te.broadcast_index(batch2, lead), k, *column)]
        return te.sum(te.cast(a, acc) * te.cast(b, acc), axis=k)

    return narrowed(te.compute((*batch, *rows, *columns), dot, name="matmul"), result)


@operator("dequantize")
def dequantize(
    q: te.Tensor,
    scale: te.Tensor,
    *,
    bits: int,
    group: int,
    k: int,
    layout: str = "NK",
    dtype: str = "float16",
    values: tuple[int, ...] = (),
) -> te.Tensor:
    """Dequantize symmetric group quantization: ``(code - zero_point) * scale``, zero point ``2**(bits-1) - 1``.

    q: uint32 [..., N, words] with ``32 // bits`` codes per word, the first in the lowest bits, or in two bit planes,
    see ``tir/code_words.py``; scale: [..., N, groups], one per ``group`` codes, floats or
    int8 as in ``tir/byte_scales.py``. Layout "KN": both are transposed
    ([words, N] and [groups, N]). values: a codebook, one integer in [-128, 127] per code: elements are
    ``values[code] * scale``. Returns [..., N, k] in ``dtype``, computed in that dtype.
    """
    if layout not in ("NK", "KN"):
        raise ValueError(f"layout: got {layout!r}; expected 'NK' or 'KN'")
    if not 1 <= bits <= 16:
        raise ValueError(f"bits: got {bits}; expected 1 to 16")
    if values and (len(values) != 1 << bits or min(values) < -128 or max(values) > 127):
        raise ValueError(f"values: got {len(values)} of them; expected {1 << bits}, from -128 to 127")
    if q.ndim < 2 or scale.ndim < 2:
        raise ValueError(f"got shapes {show_shape(q.shape)} and {show_shape(scale.shape)}; expected two axes or more")
    words, zero_point = CodeWords(bits, group), (1 << (bits - 1)) - 1
    words.check()
    lead = q.shape[:-1] if layout == "NK" else (*q.shape[:-2], q.shape[-1])
    groups = scale.shape[-1] if layout == "NK" else scale.shape[-2]
    if not is_const(groups, -(-k // group)):
        raise ValueError(f"scale: got {show_shape((groups,))} groups; expected {-(-k // group)} ({k=}, {group=})")

    def at(tensor: te.Tensor, row: tuple[PrimExpr, ...], column: PrimExpr) -> PrimExpr:
        return tensor[(*row, column)] if layout == "NK" else tensor[(*row[:-1], column, row[-1])]

    def element(*i: PrimExpr) -> PrimExpr:
        row, j = i[:-1], i[-1]
        code = _code(words, lambda word: at(q, row, word), j)
        return te.cast(_weight(te.cast(code, "int32"), values, zero_point), dtype) * te.cast(
            scale_value(at(scale, row, j // group)), dtype
        )

    codes = {"bits": bits, "group": group, "layout": layout, "values": values}
    return te.compute((*lead, k), element, name="dequantize", attrs={QUANTIZED: codes})


QUANTIZED = "quantized"
"""Annotation of ``dequantize``'s block: the operator's attributes, by which back ends select kernels."""


def _code(words: CodeWords, load: Callable[[PrimExpr], PrimExpr], j: PrimExpr) -> PrimExpr:
    """Code ``j`` of a row, as uint32; ``load`` returns the row's word at an index."""

    def field(word: PrimExpr, shift: PrimExpr, bits: int) -> PrimExpr:
        return (load(word) >> te.cast(shift, "uint32")) & ((1 << bits) - 1)

    run, position = j // words.run, j % words.run
    if not words.is_split:
        return field(run, position * words.bits, words.bits)
    (low, low_shift), (high, high_shift) = words.low(position), words.high(position)
    first = run * words.run_words
    upper = field(first + high, high_shift, words.high_bits)
    return field(first + low, low_shift, words.low_bits) | (upper << const(words.low_bits, "uint32"))


def _weight(code: PrimExpr, values: tuple[int, ...], zero_point: int) -> PrimExpr:
    if not values:
        return code - zero_point
    words = [int.from_bytes(bytes(v & 255 for v in values[i : i + 4]), "little") for i in range(0, len(values), 4)]
    word = const(words[-1], "uint32")
    for i in range(len(words) - 2, -1, -1):
        word = te.select(code < 4 * (i + 1), const(words[i], "uint32"), word)
    entry = te.cast((word >> te.cast((code & 3) * 8, "uint32")) & 255, "int32")
    return (entry ^ 128) - 128
