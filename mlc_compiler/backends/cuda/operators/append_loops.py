"""TVMScript macros of appending to a KV cache; ``k`` is ``append._Append``."""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....ir.expr import maximum
from ....relax.ops.quantized_cache import code_of, inverse_of, scale_of
from ....script import T
from ..machine import WARP
from .warps import reduce_lanes


@T.macro
def append_tile(k, tile, g, warp, lane):
    for i in range(WARP // k.warps):
        t = i * k.warps + warp
        token = tile * WARP + t
        if token < k.n:
            if k.scales:
                quantize_token(k, token, t, g, lane)
            else:
                convert_token(k, token, t, g, lane)
    T.tvm_storage_sync("shared")
    if tile * WARP + lane < k.n:
        store_keys(k, tile * WARP + lane, g, warp, lane)


@T.macro
def convert_token(k, token, t, g, lane):
    for c in range(T.ceildiv(k.key, WARP)):
        d = c * WARP + lane
        if d < k.key:
            k.staged[t, d] = k.stored_key(token, g, d)
    if k.value:
        store_values(k, token, g, lane)


# -- codes with scales -------------------------------------------------------------------------------------------------


@T.macro
def quantize_token(k, token, t, g, lane):
    """Stage the codes of the token's key, store the codes of its value and both scales; executed by a whole warp."""
    load_vector(k, k.key_at, k.key, token, g, lane)
    scale_vector(k, k.scales[0], token, g, lane)
    for c in T.unroll(T.ceildiv(k.key, WARP)):
        if c * WARP + lane < k.key:
            k.staged[t, c * WARP + lane] = code_of(k.vector[c], k.inverse[0])
    load_vector(k, k.value_at, k.value, token, g, lane)
    scale_vector(k, k.scales[1], token, g, lane)
    if k.exists(token):
        page = k.page(token)
        slot = k.slot(token)
        for c in T.unroll(T.ceildiv(k.value, WARP)):
            if c * WARP + lane < k.value:
                k.v_pages[k.layer, page, g, slot, c * WARP + lane] = code_of(k.vector[c], k.inverse[0])


@T.macro
def load_vector(k, element_at, size, token, g, lane):
    """Load the lane's elements of a key or a value, and find the greatest magnitude of all."""
    k.largest[0] = T.float32(0)
    for c in T.unroll(T.ceildiv(size, WARP)):
        if c * WARP + lane < size:
            k.vector[c] = element_at(token, g, c * WARP + lane)
            k.largest[0] = T.max(k.largest[0], T.max(k.vector[c], -k.vector[c]))
    reduce_lanes(k.largest, 1, k.other, maximum, 1, WARP)


@T.macro
def scale_vector(k, scales, token, g, lane):
    """Store the scale of the vector whose greatest magnitude is ``largest``."""
    scale = scale_of(k.largest[0])
    k.inverse[0] = inverse_of(scale)
    if lane < 1:
        if k.exists(token):
            scales[k.layer, k.page(token), g, k.slot(token)] = scale


# -- where they go -----------------------------------------------------------------------------------------------------


@T.macro
def store_values(k, token, g, lane):
    if k.exists(token):
        page = k.page(token)
        slot = k.slot(token)
        for c in range(T.ceildiv(k.value, WARP)):
            e = c * WARP + lane
            if e < k.value:
                k.v_pages[k.layer, page, g, slot, e] = k.stored_value(token, g, e)


@T.macro
def store_keys(k, token, g, warp, lane):
    if k.exists(token):
        page = k.page(token)
        slot = k.slot(token)
        for i in range(T.ceildiv(k.key, k.warps)):
            d = i * k.warps + warp
            if d < k.key:
                k.k_pages[k.layer, page, g, d, slot] = k.staged[lane, d]
