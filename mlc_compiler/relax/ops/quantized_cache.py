"""Quantized KV cache: keys and values as int8 codes with one scale per position and key/value head.

The sizes are those of ``attention.py``. ``k_pages`` [L, P, G, D, S] and ``v_pages`` [L, P, G, S, E] hold int8 codes,
``k_scales`` and ``v_scales``, float16 [L, P, G, S], their scales. A vector x (a key or a value of one position and
head) is stored symmetrically:

    scale = float16(min(max |x_i| / 127, 65504));    code_i = clip(round(x_i / scale), -127, 127),  0 if scale is 0

``round`` rounds to nearest even. Attention reads ``code_i * scale``, which differs from x_i by at most
``scale / 2``, and by ``scale / 16`` more for the largest elements where the scale was rounded down.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.expr import PrimExpr, Var, const, maximum, minimum
from ...tir import te
from ...tir.nodes import BufferLoad, BufferStore, For, IfThenElse, Stmt, seq
from .attention import Element, Pages, as_index, rotated
from .registry import Tensors, operator

CODE_DTYPE, SCALE_DTYPE = "int8", "float16"
LARGEST_CODE = 127
LARGEST_SCALE = 65504.0


def scale_of(largest: PrimExpr) -> PrimExpr:
    """The float16 scale of a vector, given its largest magnitude in float32."""
    return te.cast(minimum(largest * (1.0 / LARGEST_CODE), LARGEST_SCALE), SCALE_DTYPE)


def inverse_of(scale: PrimExpr) -> PrimExpr:
    """``1 / scale`` in float32; 0 for a scale of 0."""
    wide = te.f32(scale)
    return te.select(wide > 0.0, const(1.0, "float32") / wide, const(0.0, "float32"))


def code_of(element: PrimExpr, inverse: PrimExpr) -> PrimExpr:
    """The int8 code of a float32 element, given the inverse of its scale."""
    rounded = te.round(element * inverse)
    return te.cast(minimum(maximum(rounded, float(-LARGEST_CODE)), float(LARGEST_CODE)), CODE_DTYPE)


def check_dtypes(k_pages: te.Tensor, v_pages: te.Tensor, k_scales: te.Tensor, v_scales: te.Tensor) -> None:
    """Raise ValueError unless pages are int8 and scales float16."""
    expected = {k_pages: CODE_DTYPE, v_pages: CODE_DTYPE, k_scales: SCALE_DTYPE, v_scales: SCALE_DTYPE}
    for tensor, dtype in expected.items():
        if tensor.dtype != dtype:
            raise ValueError(
                f"got pages or scales of {tensor.dtype}; expected {CODE_DTYPE} pages, {SCALE_DTYPE} scales"
            )


@operator("kv_cache.append_quantized", updates=("k_pages", "v_pages", "k_scales", "v_scales"), scalars=("layer",))
def append_quantized(
    k_pages: te.Tensor,
    v_pages: te.Tensor,
    k_scales: te.Tensor,
    v_scales: te.Tensor,
    k: te.Tensor,
    v: te.Tensor,
    page_table: te.Tensor,
    token_seq: te.Tensor,
    token_pos: te.Tensor,
    layer: PrimExpr,
    rotation: Tensors,
    *,
    k_first: int = 0,
    v_first: int = 0,
    interleaved: bool = False,
) -> list[te.Tensor]:
    """Quantize and store keys and values of n tokens; returns pages and scales, written in place.

    k, v, rotation, k_first, v_first, interleaved, and tokens out of range: as for ``kv_cache.append``. Keys are
    quantized after their rotation. Raises ValueError when pages are not int8 or scales not float16.
    """
    updates = (k_pages, v_pages, k_scales, v_scales)
    check_dtypes(*updates)
    pages = Pages(page_table, k_pages.shape[1], k_pages.shape[4])
    largest, inverse = te.Cell("largest", "float32"), te.Cell("inverse", "float32")

    def quantize(x: Element, size: PrimExpr, scale_place: BufferLoad, place: Callable[[PrimExpr], BufferLoad]) -> Stmt:
        i, j = Var("i"), Var("j")
        scale = scale_of(largest.value)
        return seq(
            largest.set(0.0),
            For(i, size, largest.set(te.max(largest.value, te.abs(x(i))))),
            BufferStore(scale_place.buffer, scale, scale_place.indices),
            inverse.set(inverse_of(scale)),
            For(j, size, BufferStore(place(j).buffer, code_of(x(j), inverse.value), place(j).indices)),
        )

    def store(t: Var, g: Var) -> Stmt:
        page, slot, exists = pages.place(as_index(token_seq[t]), as_index(token_pos[t]))
        key: Element = lambda d: te.f32(k[t, g + k_first, d])  # noqa: E731
        if rotation:
            cos, sin = rotation
            key = rotated(key, lambda j: cos[t, j], lambda j: sin[t, j], cos.shape[1], interleaved)
        value: Element = lambda e: te.f32(v[t, g + v_first, e])  # noqa: E731
        at = (layer, page, g)
        keys, values, key_scales, value_scales = (x.buffer for x in updates)
        return IfThenElse(
            exists,
            seq(
                quantize(key, keys.shape[3], key_scales[*at, slot], lambda d: keys[*at, d, slot]),
                quantize(value, values.shape[4], value_scales[*at, slot], lambda e: values[*at, slot, e]),
            ),
        )

    body = te.each((k.shape[0], k_pages.shape[2]), "append_quantized", store, [largest.buffer, inverse.buffer])
    inputs = [*updates, k, v, page_table, token_seq, token_pos, *rotation]
    return [te.updated(written, inputs, body) for written in updates]
