"""Group quantization: integer codes packed into uint32 words, with one scale per group of ``scheme.group`` inputs.

    scale = max |w| / zero_point        code = clamp(round(w / scale + zero_point), 0, max_code)
    w'    = (code - zero_point) * scale

``mlc_compiler/tir/code_words.py`` defines the packing of codes; codes beyond the last input are 0. float16 schemes
round to float16 after every step, bfloat16 ones compute in float32 with a rounded scale (in the KN layout, an unrounded
one), to reproduce mlc_llm's files byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import prod

import ml_dtypes
import numpy as np

from mlc_compiler.tir import byte_scales
from quantization import kernels
from quantization.scale_search import middles, search, search_inputs
from quantization.schemes import Scheme

BLOCK_ELEMENTS = 1 << 17
COMPILED_ELEMENTS = 1 << 18  # smaller weights do not justify compiling a kernel
Blocks = Callable[[], Iterable[np.ndarray]]
Kernel = Callable[..., None]
_HALF = np.dtype(np.float16)
_HALF_TO_FLOAT = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
_SIGNIFICAND_GAP = np.uint32(13)  # bits that float32 has more than float16
_BELOW_HALF = np.uint32(0x0FFF)
_KEPT = np.uint32(0xFFFFE000)


def model_dtype(scheme: Scheme) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if scheme.model_dtype == "bfloat16" else scheme.model_dtype)


def tensors(shape: tuple[int, ...], scheme: Scheme, layout: str) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of codes and scales of a weight of ``shape`` [..., N, K]."""
    *outer, inputs = shape
    words, groups = (*outer, scheme.words(inputs)), (*outer, scheme.groups(inputs))
    if layout == "KN":
        words, groups = _swapped(words), _swapped(groups)
    return {"q_weight": (words, scheme.storage_dtype), "q_scale": (groups, scheme.scale_dtype)}


def encode(weight: np.ndarray, scheme: Scheme, layout: str | None = None) -> dict[str, np.ndarray]:
    """Quantize along the last axis. weight: [..., N, K], any float dtype; a NaN gets code 0.

    Returns q_weight uint32 [..., N, words] and q_scale scale_dtype [..., N, groups], or both with the last two axes
    swapped in the KN layout. Memory beyond the result is a few blocks of ``BLOCK_ELEMENTS``.
    """
    return _encode(lambda: [weight], weight.shape, scheme, layout or scheme.layout)[0]


def encode_rows(
    blocks: Blocks, shape: tuple[int, ...], scheme: Scheme, layout: str, importance: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """As ``encode`` for a weight of ``shape``; blocks() yields it in pieces of consecutive rows [..., K].

    importance: float32 [K], importances of the inputs, for a scheme with searched scales. Raises ValueError for NaN,
    infinities, and values that overflow the model dtype or the scheme's scales.
    """
    made, too_large = _encode(blocks, shape, scheme, layout, importance)
    if too_large:
        raise ValueError(f"a weight that {scheme.name if scheme.byte_scales else scheme.model_dtype} cannot hold")
    return made


def decode(made: dict[str, np.ndarray], scheme: Scheme, inputs: int, layout: str | None = None) -> np.ndarray:
    """Dequantize to weights [..., N, inputs] in model_dtype."""
    layout = layout or scheme.layout
    outer = laid_out(made["q_scale"], layout).shape[:-1]
    blocks = list(decode_rows(made, scheme, (*outer, inputs), layout))
    return np.concatenate(blocks).reshape(*outer, inputs)


def decode_rows(
    made: dict[str, np.ndarray], scheme: Scheme, shape: tuple[int, ...], layout: str
) -> Iterator[np.ndarray]:
    """Dequantize a weight of ``shape`` to blocks of rows [n, K] in model_dtype."""
    outputs, inputs = prod(shape[:-1]), shape[-1]
    words = laid_out(made["q_weight"], layout).reshape(outputs, -1)
    scales = scale_values(laid_out(made["q_scale"], layout), scheme).reshape(outputs, -1)
    step = max(1, BLOCK_ELEMENTS // max(1, inputs))
    for start in range(0, outputs, step):
        rows = slice(start, start + step)
        values = scheme.levels.astype(np.float32)[unpack(words[rows], scheme)] * np.repeat(
            scales[rows], scheme.group, axis=-1
        )
        yield values[:, :inputs].astype(model_dtype(scheme))


def scale_values(stored: np.ndarray, scheme: Scheme) -> np.ndarray:
    """The values of stored scales, float32."""
    return (byte_scales.from_bytes(stored) if scheme.byte_scales else stored).astype(np.float32)


def stored_scales(scales: np.ndarray, scheme: Scheme) -> np.ndarray:
    """Scales in model_dtype as they are stored; with one byte, they have to be rounded."""
    return byte_scales.to_bytes(scales) if scheme.byte_scales else scales


def unpack(words: np.ndarray, scheme: Scheme) -> np.ndarray:
    """Unpack words uint32 [..., words] to codes uint8 [..., groups * group]."""
    of = scheme.code_words
    runs, positions = words.reshape(*words.shape[:-1], -1, of.run_words), np.arange(of.run)
    if of.is_split:
        low, high = (_fields(runs, *place(positions)) for place in (of.low, of.high))
        codes = low & _mask(of.low_bits) | (high & _mask(of.high_bits)) << np.uint32(of.low_bits)
    else:
        codes = _fields(runs, 0 * positions, positions * of.bits) & _mask(of.bits)
    return codes.astype(np.uint8).reshape(*words.shape[:-1], -1)


def _fields(runs: np.ndarray, words: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    """Words of runs, each shifted right."""
    return runs[..., words] >> shifts.astype(np.uint32)


def _mask(bits: int) -> np.uint32:
    return np.uint32((1 << bits) - 1)


def max_error(scales: np.ndarray, scheme: Scheme) -> np.ndarray:
    """Upper bound of |w - decoded| for a finite weight w (already in model_dtype), per group, as float32.

    Half a step, plus rounding to the model dtype. It does not hold for searched scales, which may clip.
    """
    info = ml_dtypes.finfo(model_dtype(scheme))
    slack = 2 * scheme.zero_point * float(info.eps)
    tiny = 8 * scheme.zero_point * float(info.smallest_subnormal)
    return scales.astype(np.float32) * np.float32(0.5 + slack) + np.float32(tiny)


def row_slices(rows: np.ndarray) -> Iterator[np.ndarray]:
    """Split a matrix into blocks of whole rows with about BLOCK_ELEMENTS elements."""
    step = max(1, BLOCK_ELEMENTS // max(1, rows.shape[1]))
    return (rows[start : start + step] for start in range(0, len(rows), step))


def _encode(
    blocks: Blocks, shape: tuple[int, ...], scheme: Scheme, layout: str, importance: np.ndarray | None = None
) -> tuple[dict[str, np.ndarray], bool]:
    """Codes and scales, and whether a weight was NaN, infinite or too large for the scheme."""
    by_group = None if importance is None else _padded_groups(importance[None], scheme, np.dtype(np.float32))
    outputs, inputs = prod(shape[:-1]), shape[-1]
    words = np.empty((outputs, scheme.words(inputs)), np.uint32)
    scales = np.empty((outputs, scheme.groups(inputs)), model_dtype(scheme))
    compiled = outputs * inputs >= COMPILED_ELEMENTS and inputs % scheme.group == 0
    start, too_large = 0, False
    for block in blocks():
        kernel = _kernel(scheme, block.dtype.name, layout, by_group) if compiled else None
        for rows in row_slices(block.reshape(prod(block.shape[:-1]), inputs)):
            part = slice(start, start + len(rows))
            done = None if kernel is None else _encode_compiled(kernel, rows, scheme, words[part], scales[part])
            if done is None:
                done = _encode_block(rows, scheme, layout, by_group, words[part], scales[part])
            too_large |= done
            start = part.stop
    made = (words, stored_scales(scales, scheme))
    q_weight, q_scale = (laid_out(array.reshape(*shape[:-1], -1), layout) for array in made)
    return {"q_weight": q_weight, "q_scale": q_scale}, too_large


def _swapped(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2])


def laid_out(array: np.ndarray, layout: str) -> np.ndarray:
    """Codes or scales [..., N, x] in the layout "NK" or "KN", contiguous."""
    return np.ascontiguousarray(np.swapaxes(array, -1, -2)) if layout == "KN" else array


def _kernel(scheme: Scheme, source: str, layout: str, importance: np.ndarray | None) -> Kernel | None:
    """A compiled kernel (weights, codes, scales, largest magnitudes, number of groups), see ``kernels``; or None."""
    if not scheme.search:
        return kernels.encode_kernel(scheme, source, layout)
    tried, weights = search_inputs(scheme, importance)
    kernel = kernels.search_kernel(scheme, source, len(tried))
    if kernel is None:
        return None
    levels = scheme.levels.astype(np.float32)
    return lambda *arrays_and_n: kernel(
        *arrays_and_n[:-1], tried, levels, middles(scheme), weights, arrays_and_n[-1], len(weights)
    )


def _encode_block(
    rows: np.ndarray,
    scheme: Scheme,
    layout: str,
    importance: np.ndarray | None,
    words: np.ndarray,
    scales: np.ndarray,
) -> bool:
    """Fill words and scales; returns whether a weight was NaN, infinite or too large for the scheme.

    importance: [groups of a row, group].
    """
    groups = _padded_groups(rows, scheme)
    with np.errstate(all="ignore"):
        largest, finite = _largest(groups)
        if scheme.search and finite:
            codes, found = search(groups, scheme, importance)
            scales[:] = found.reshape(scales.shape)
        else:
            exact = largest / np.float32(scheme.zero_point)
            scales[:] = exact.reshape(scales.shape)
            unrounded = scheme.model_dtype == "bfloat16" and layout == "KN"
            codes = _codes(groups, exact if unrounded else scales.astype(np.float32).reshape(-1), scheme)
    codes = codes.reshape(len(rows), -1)
    codes[:, rows.shape[1] :] = 0
    words[:] = pack(codes, scheme)
    return not finite or bool((largest > scheme.largest_weight).any())


def _encode_compiled(
    kernel: Kernel, rows: np.ndarray, scheme: Scheme, words: np.ndarray, scales: np.ndarray
) -> bool | None:
    """As ``_encode_block``, for rows of whole groups; None, with undefined words and scales, if a weight is NaN."""
    codes = np.empty(rows.shape, np.uint8)
    largest = np.empty(scales.shape, kernels.BITS[scheme.model_dtype])
    kernel(np.ascontiguousarray(rows), codes, scales, largest, scales.size)
    top, infinity = int(largest.max(initial=0)), kernels.INFINITY_BITS[scheme.model_dtype]
    if top > infinity:
        return None
    words[:] = pack(codes, scheme)
    too_large = scheme.byte_scales and np.uint16(top).view(np.float16) > scheme.largest_weight
    return top == infinity or bool(too_large)


def _padded_groups(rows: np.ndarray, scheme: Scheme, dtype: np.dtype | None = None) -> np.ndarray:
    """Rows rounded to ``dtype`` (None: the model dtype), as float32 [groups of all rows, group], padded with zeros."""
    outputs, inputs = rows.shape
    padded = np.zeros((outputs, scheme.groups(inputs) * scheme.group), np.float32)
    with np.errstate(over="ignore"):
        padded[:, :inputs] = _as_float(rows.astype(dtype or model_dtype(scheme), copy=False))
    return padded.reshape(-1, scheme.group)


def _as_float(array: np.ndarray) -> np.ndarray:
    if array.dtype == _HALF:
        return _HALF_TO_FLOAT[np.ascontiguousarray(array).view(np.uint16)]  # several times faster than astype
    return array.astype(np.float32, copy=False)


def _largest(groups: np.ndarray) -> tuple[np.ndarray, bool]:
    """Maximum |w| of every group, ignoring NaN, and whether all weights are finite."""
    magnitudes = np.abs(groups)
    largest = np.maximum.reduceat(magnitudes.reshape(-1), np.arange(0, magnitudes.size, groups.shape[1]))
    if np.isnan(largest).any():
        magnitudes[np.isnan(magnitudes)] = np.nan  # quiet NaNs: fmax propagates signalling ones
        return np.fmax.reduce(magnitudes, axis=-1), False
    return largest, bool(np.isfinite(largest).all())


def _codes(groups: np.ndarray, divisor: np.ndarray, scheme: Scheme) -> np.ndarray:
    """Codes uint8 in the shape of ``groups``, which is overwritten. 0/0 becomes code 0."""
    halves = scheme.model_dtype == "float16" and scheme.rounding == "model"
    values = np.divide(groups, divisor[:, None], out=groups)
    if halves:
        _round_to_half(values)
    values += np.float32(scheme.zero_point)
    if halves:
        _round_to_half(values)
    np.rint(values, out=values)
    np.fmax(values, np.float32(0), out=values)
    np.fmin(values, np.float32(scheme.max_code), out=values)
    return values.astype(np.uint8)


def _round_to_half(values: np.ndarray) -> None:
    """Round float32 in place to float16's 11 significant bits, ties to even.

    Exponents keep float32's range: values that float16 would flush or overflow get the same code.
    """
    bits = values.view(np.uint32)
    odd = (bits >> _SIGNIFICAND_GAP) & np.uint32(1)
    bits += odd
    bits += _BELOW_HALF
    bits &= _KEPT


def pack(codes: np.ndarray, scheme: Scheme) -> np.ndarray:
    """Pack codes uint8 [N, groups * group] into words uint32 [N, words]."""
    if scheme.bits == 8:
        return codes.view("<u4")
    if scheme.bits == 4:
        pairs = codes.view("<u2")
        return (pairs | pairs >> np.uint16(4)).astype(np.uint8).view("<u4")
    of = scheme.code_words
    runs = codes.reshape(len(codes), -1, of.run).astype(np.uint32)
    words = np.zeros((*runs.shape[:2], of.run_words), np.uint32)
    for position in range(of.run):
        code = runs[..., position]
        if not of.is_split:
            words[..., 0] |= code << np.uint32(position * of.bits)
            continue
        (low, low_shift), (high, high_shift) = of.low(position), of.high(position)
        words[..., low] |= (code & _mask(of.low_bits)) << np.uint32(low_shift)
        words[..., high] |= code >> np.uint32(of.low_bits) << np.uint32(high_shift)
    return words.reshape(len(codes), -1)
