"""TVMScript macros of appending to a KV cache; ``k`` is ``append._Append``."""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....script import T
from ..machine import WARP


@T.macro
def append_tile(k, tile, g, warp, lane):
    for i in range(WARP // k.warps):
        t = i * k.warps + warp
        token = tile * WARP + t
        if token < k.n:
            for c in range(T.ceildiv(k.key, WARP)):
                d = c * WARP + lane
                if d < k.key:
                    k.staged[t, d] = k.stored_key(token, g, d)
            if k.value:
                store_values(k, token, g, lane)
    T.tvm_storage_sync("shared")
    if tile * WARP + lane < k.n:
        store_keys(k, tile * WARP + lane, g, warp, lane)


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
