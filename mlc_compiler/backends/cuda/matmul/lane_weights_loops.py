"""TVMScript macros of the weights of one lane; ``p`` is ``lane_weights.LaneWeights``."""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....script import T


@T.macro
def load_weights(p, column, load, w):
    """``w`` = the weights of a load of a column, in the order of ``p.order``."""
    if p.packed:
        unpack_weights(p, column, load, w)
    else:
        for e in T.vectorized(p.elements):
            w[e] = p.element(column, load, e)


@T.macro
def unpack_weights(p, column, load, w):
    held = T.decl_buffer((p.elements,), p.dtype, scope="local")
    scale = T.decl_buffer((p.elements // p.taken,), p.matmul.dtype, scope="local")
    book = T.decl_buffer((16,), "int8", scope="local")
    fill_book(p.packed, book)
    for e in T.vectorized(p.elements):
        held[e] = p.element(column, load, e)
    for number in T.unroll(p.elements // p.taken):
        if p.packed.unpacking.scaled:
            scale[number] = p.scale(column, load, number)
        p.unpack(w[number * p.codes], held[number * p.taken], scale[number], book[0])


@T.macro
def fill_book(packed, book):
    """Store the entries of the codebook, if there is one, to registers; they become constants."""
    if packed.unpacking.book:
        for i in T.unroll(16):
            book[i] = packed.entry(i)
