"""TVMScript macro of appending to a KV cache; ``k`` is ``append._Append``."""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....script import T


@T.macro
def append_token(k, token):
    if k.place(token)[2]:
        page = k.place(token)[0]
        slot = k.place(token)[1]
        for g in range(k.heads):
            for d in T.vectorized(k.key):
                k.row[d] = k.key_at(token, g, d)
            if k.pairs:
                for i in T.vectorized(k.pairs):
                    x = k.row[k.pair(i)]
                    y = k.row[k.partner(i)]
                    k.row[k.pair(i)] = x * k.cos(token, i) - y * k.sin(token, i)
                    k.row[k.partner(i)] = y * k.cos(token, i) + x * k.sin(token, i)
            for d in T.vectorized(k.key):
                k.rounded[d] = k.stored_key(d)
            for d in range(k.key):
                k.k_pages[k.layer, page, g, d, slot] = k.rounded[d]
            for e in T.vectorized(k.value):
                k.v_pages[k.layer, page, g, slot, e] = k.stored_value(token, g, e)
