"""Attention over a paged KV cache (Kwon et al. 2023), and rotary position embedding.

Sizes: n tokens per call, H query heads, G key/value heads, D elements of a key, E of a value, L layers, P pages
of S slots. ``k_pages`` [L, P, G, D, S] and ``v_pages`` [L, P, G, S, E] hold keys and values. In these layouts, the
scores of a page's slots, and the E elements of a result, are contiguous. Row s of ``page_table``, int32
[sequences, pages of a sequence], lists the pages of sequence s in order. ``token_seq`` and ``token_pos``, int32
[n], are the sequence of each token and its position in that sequence. Indices of sequences, positions and pages that
are out of range are clamped for reads and skipped for writes, so that no input causes an access out of bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...ir.expr import INDEX_DTYPE, ExprLike, IntImm, PrimExpr, Var, const, logical_and, logical_or, maximum, minimum
from ...tir import nodes as tir
from ...tir import te
from ...tir.nodes import BufferStore, For, IfThenElse, seq
from ..info import show_shape, static_size
from .registry import Tensors, operator

NO_MAXIMUM = -1e30
"""The initial running maximum of the scores."""
OPTIONAL_INPUTS = ("cos", "sin", "inv_freq", "lengths", "sinks", "slopes", "biases", "k_scales", "v_scales")
LARGEST_FLOAT8 = 448.0
"""The largest finite float8_e4m3fn; values stored in pages of that type saturate there."""

Element = Callable[[PrimExpr], PrimExpr]


def as_index(value: PrimExpr) -> PrimExpr:
    """Cast ``value`` to the dtype of indices."""
    return te.cast(value, INDEX_DTYPE)


def stored(value: PrimExpr, dtype: str) -> PrimExpr:
    """Convert ``value`` to the dtype of pages: rounded to nearest even, float8_e4m3fn with saturation."""
    if dtype == "float8_e4m3fn":
        value = minimum(maximum(te.f32(value), -LARGEST_FLOAT8), LARGEST_FLOAT8)
    return te.cast(value, dtype)


def clamped(value: PrimExpr, size: PrimExpr) -> PrimExpr:
    """Clamp ``value`` to ``[0, size)``."""
    return minimum(maximum(value, 0), size - 1)


def rotated(element: Element, cos: Element, sin: Element, half: PrimExpr, interleaved: bool) -> Element:
    """Rotate a head's elements in pairs (d, d + half), or (2 d, 2 d + 1) when interleaved; the rest is unchanged."""

    def turned(d: PrimExpr) -> PrimExpr:
        if interleaved:
            pair = d // 2
            even = element(d) * cos(pair) - element(d + 1) * sin(pair)
            odd = element(d) * cos(pair) + element(d - 1) * sin(pair)
            return te.if_then_else(d < half * 2, te.if_then_else(d % 2 < 1, even, odd), element(d))
        first = element(d) * cos(d) - element(d + half) * sin(d)
        second = element(d) * cos(d - half) + element(d - half) * sin(d - half)
        return te.if_then_else(d < half, first, te.if_then_else(d < half * 2, second, element(d)))

    return turned


@operator("nn.rotary_embedding")
def rotary_embedding(
    x: te.Tensor, cos: te.Tensor, sin: te.Tensor, *, first: int = 0, heads: int = 0, interleaved: bool = False
) -> te.Tensor:
    """Rotate pairs of elements of each head by its token's angles (Su et al. 2021).

    x: [n, all heads, D]; cos, sin: float32 [n, R/2], R <= D. first, heads: the heads of x to use, all from ``first`` on
    when heads is 0. Pairs are (d, d + R/2), or (2 d, 2 d + 1) when interleaved. Returns [n, heads, D] in x's dtype.
    """
    count = heads or _heads_after(x, first)
    half = cos.shape[1]

    def element(t: Var, h: Var, d: Var) -> PrimExpr:
        head = rotated(
            lambda i: te.f32(x[t, h + first, i]), lambda j: cos[t, j], lambda j: sin[t, j], half, interleaved
        )
        return te.cast(head(d), x.dtype)

    return te.compute((x.shape[0], count, x.shape[2]), element, name="rotary_embedding")


def _heads_after(x: te.Tensor, first: int) -> int:
    if x.ndim != 3 or (static_size(x.shape[1]) or 0) <= first:
        raise ValueError(f"got shape {show_shape(x.shape)}; expected [tokens, more than {first} heads, elements]")
    return (static_size(x.shape[1]) or 0) - first


@dataclass(frozen=True)
class Pages:
    """The mapping of positions to pages; ``count`` pages of ``slots`` positions each."""

    page_table: te.Tensor | tir.Buffer
    count: PrimExpr
    slots: ExprLike

    @property
    def limit(self) -> PrimExpr:
        """The maximum number of positions of a sequence; 0 when there are no sequences or no pages."""
        has_pages = logical_and(self.page_table.shape[0] > 0, self.count > 0)
        return te.if_then_else(has_pages, self.page_table.shape[1] * self.slots, 0)

    def sequence(self, given: PrimExpr) -> PrimExpr:
        """The index of a sequence, clamped to the valid range."""
        return clamped(as_index(given), self.page_table.shape[0])

    def page(self, sequence: PrimExpr, position: PrimExpr) -> PrimExpr:
        """The page table's entry for a position of a valid sequence, not checked; -1 when there are no pages."""
        row = clamped(position // self.slots, self.page_table.shape[1])
        return te.if_then_else(self.limit > 0, as_index(self.page_table[sequence, row]), -1)

    def existing(self, sequence: PrimExpr, position: PrimExpr) -> PrimExpr:
        """The page of a position, clamped to the valid range."""
        return clamped(self.page(sequence, position), self.count)

    def place(self, given: PrimExpr, position: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
        """The page and slot of a position, and a condition that the sequence, the position and the page are valid."""
        page = self.page(self.sequence(given), position)
        valid = logical_and(given >= 0, given < self.page_table.shape[0], position >= 0, position < self.limit)
        return page, position % self.slots, logical_and(valid, page >= 0, page < self.count)


@operator("kv_cache.append", updates=("k_pages", "v_pages"), scalars=("layer",))
def append(
    k_pages: te.Tensor,
    v_pages: te.Tensor,
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
    """Store keys and values of n tokens in the cache; returns ``k_pages`` and ``v_pages``, written in place.

    k: [n, heads, D] and v: [n, heads, E], of which heads ``k_first`` to ``k_first + G`` and ``v_first`` to
    ``v_first + G`` are stored. rotation: (cos, sin) to rotate the keys before storing (see ``nn.rotary_embedding``), or
    (). A token whose sequence, position or page is out of range is not stored. Pages of float8_e4m3fn saturate at
    448; for pages of int8 see ``kv_cache.append_quantized``.
    """
    pages = Pages(page_table, k_pages.shape[1], k_pages.shape[4])

    def store(t: Var, g: Var) -> tir.Stmt:
        page, slot, exists = pages.place(as_index(token_seq[t]), as_index(token_pos[t]))
        key: Element = lambda d: te.f32(k[t, g + k_first, d])  # noqa: E731
        if rotation:
            cos, sin = rotation
            key = rotated(key, lambda j: cos[t, j], lambda j: sin[t, j], cos.shape[1], interleaved)
        at, d, e = (layer, page, g), Var("d"), Var("e")
        value = stored(v[t, g + v_first, e], v_pages.dtype)
        store_key = BufferStore(k_pages.buffer, stored(key(d), k_pages.dtype), (*at, d, slot))
        store_value = BufferStore(v_pages.buffer, value, (*at, slot, e))
        return IfThenElse(exists, seq(For(d, k_pages.shape[3], store_key), For(e, v_pages.shape[4], store_value)))

    body = te.each((k.shape[0], k_pages.shape[2]), "append", store)
    inputs = [k_pages, v_pages, k, v, page_table, token_seq, token_pos, *rotation]
    return [te.updated(pages, inputs, body) for pages in (k_pages, v_pages)]


@operator("kv_cache.append_latent", updates=("pages",), scalars=("layer",))
def append_latent(
    pages: te.Tensor,
    latent: te.Tensor,
    page_table: te.Tensor,
    token_seq: te.Tensor,
    token_pos: te.Tensor,
    layer: PrimExpr,
) -> te.Tensor:
    """Store the latent vectors (both keys and values) of n tokens; returns ``pages``, written in place.

    pages: [L, P, 1, D, S]; latent: [n, D]. A token whose sequence, position or page is out of range is not stored.
    """
    where = Pages(page_table, pages.shape[1], pages.shape[4])

    def store(t: Var) -> tir.Stmt:
        page, slot, exists = where.place(as_index(token_seq[t]), as_index(token_pos[t]))
        d = Var("d")
        at = (layer, page, IntImm(0), d, slot)
        value = stored(latent[t, d], pages.dtype)
        return IfThenElse(exists, For(d, pages.shape[3], BufferStore(pages.buffer, value, at)))

    body = te.each((latent.shape[0],), "append_latent", store)
    return te.updated(pages, [pages, latent, page_table, token_seq, token_pos], body)


@operator("nn.paged_attention", scalars=("layer",))
def paged_attention(
    q: te.Tensor,
    k_pages: te.Tensor,
    v_pages: te.Tensor,
    page_table: te.Tensor,
    token_seq: te.Tensor,
    token_pos: te.Tensor,
    layer: PrimExpr,
    optional: Tensors,
    *,
    heads: int,
    scale: float,
    names: tuple[str, ...] = (),
    first: int = 0,
    value_size: int = 0,
    window: int = 0,
    chunked: bool = False,
    sink_size: int = 0,
    soft_cap: float = 0.0,
    rotation_factor: float = 1.0,
    interleaved: bool = False,
    single_query: bool = False,
) -> te.Tensor:
    """``softmax(scale * q @ keys) @ values`` over the positions visible to each token; [n, heads, E] in q's dtype.

    q: [n, all heads, D], of which ``heads`` from ``first`` on are used. ``heads / G`` query heads share a key/value
    head. A token sees the positions of its sequence up to its own; with a window, the last ``window`` of these
    and the first ``sink_size``; with ``chunked``, only those in its own chunk of ``window`` positions.
    soft_cap: unless 0, scores become ``soft_cap * tanh(score / soft_cap)``. value_size:
    unless 0, the value is the first ``value_size`` elements of the key (latent attention, absorbed form), and
    ``v_pages`` is ``k_pages``. single_query: a hint that all tokens are of different sequences; it does not change the
    result. Sums are float32.

    optional: additional inputs, named by ``names`` in the same order:

    - ``cos``, ``sin``: float32 [n, R/2]; queries are rotated by their token's angles first.
    - ``inv_freq``: float32 [R/2]; queries and stored keys are rotated by their position times these frequencies;
      cosines and sines are multiplied by ``rotation_factor``.
    - ``lengths``: int32 [sequences]; a token sees all positions below, including those after its own.
    - ``sinks``: floating [heads]; for each head, a logit that takes part in the softmax, without a value.
    - ``slopes``: float32 [heads]; ``slope * (key position - query position)`` is added to scores (Press et al. 2022).
    - ``biases``: float32 [heads, 2 R + 1]; a bias per head and distance (key position - query position, clamped to -R
      to R), which is added to scores (Raffel et al. 2020).
    - ``k_scales``, ``v_scales``: float16 [L, P, G, S], with int8 pages only; the key in a slot is its codes times
      ``k_scales``, the value its codes times ``v_scales`` (see ``kv_cache.append_quantized``).
    """
    _check_names(names, k_pages.dtype)
    if chunked and (not window or "lengths" in names):
        raise ValueError("chunked: expected a window, and no lengths")
    size = IntImm(value_size) if value_size else v_pages.shape[4]
    out = tir.buffer("attention", (q.shape[0], IntImm(heads), size), q.dtype)
    more = dict(zip(names, optional, strict=True))
    row = _Row(
        q=q,
        k_pages=k_pages,
        v_pages=v_pages,
        pages=Pages(page_table, k_pages.shape[1], k_pages.shape[4]),
        token_seq=token_seq,
        token_pos=token_pos,
        more=more,
        out=out,
        layer=layer,
        scale=scale,
        first=first,
        group=_group(heads, k_pages),
        latent=bool(value_size),
        window=window,
        chunked=chunked,
        sink_size=sink_size,
        soft_cap=soft_cap,
        rotation_factor=rotation_factor,
        interleaved=interleaved,
    )
    body = te.each((q.shape[0], IntImm(heads)), "paged_attention", row.attend, row.scratch)
    inputs = [q, k_pages, v_pages, page_table, token_seq, token_pos, *optional]
    return te.extern([out], inputs, body)[0]


@dataclass(eq=False)
class _Row:
    """Builds the statements for one row of ``paged_attention``, i.e. one query head of one token."""

    q: te.Tensor
    k_pages: te.Tensor
    v_pages: te.Tensor
    pages: Pages
    token_seq: te.Tensor
    token_pos: te.Tensor
    more: Mapping[str, te.Tensor]
    out: tir.Buffer
    layer: PrimExpr
    scale: float
    first: int
    group: int
    latent: bool
    window: int
    chunked: bool
    sink_size: int
    soft_cap: float
    rotation_factor: float
    interleaved: bool

    def __post_init__(self) -> None:
        self.query = tir.buffer("query", (self.k_pages.shape[3],), "float32", scope="local")
        self.acc = tir.buffer("acc", (self.out.shape[2],), "float32", scope="local")
        self.row_max, self.row_sum = te.Cell("row_max", "float32"), te.Cell("row_sum", "float32")
        self.score, self.new_max = te.Cell("score", "float32"), te.Cell("new_max", "float32")

    @property
    def scratch(self) -> list[tir.Buffer]:
        cells = (self.row_max, self.row_sum, self.score, self.new_max)
        return [self.query, self.acc, *(cell.buffer for cell in cells)]

    def attend(self, t: Var, h: Var) -> tir.Stmt:
        sequence, position = self.pages.sequence(self.token_seq[t]), as_index(self.token_pos[t])
        end = position + 1
        if "lengths" in self.more:
            end = te.if_then_else(self.pages.limit > 0, as_index(self.more["lengths"][sequence]), 0)
        sinks = self.more.get("sinks")
        i, e, j, o = Var("i"), Var("e"), Var("j"), Var("o")
        denominator = te.if_then_else(self.row_sum.value > 0.0, self.row_sum.value, 1.0)
        update = self._update(sequence, j, h // self.group, lambda score: self._score(score, j - position, h))
        visible = self._visible(j, position)
        result = te.cast(self.acc[o] / denominator, self.out.dtype)
        return seq(
            For(i, self.query.shape[0], BufferStore(self.query, self._query(t, h, position)(i), (i,))),
            For(e, self.out.shape[2], BufferStore(self.acc, const(0.0, "float32"), (e,))),
            self.row_max.set(NO_MAXIMUM if sinks is None else te.f32(sinks[h])),
            self.row_sum.set(0.0 if sinks is None else 1.0),
            For(
                j,
                minimum(maximum(end, 0), self.pages.limit),
                update if visible is None else IfThenElse(visible, update),
            ),
            For(o, self.out.shape[2], BufferStore(self.out, result, (t, h, o))),
        )

    def _update(self, sequence: PrimExpr, j: PrimExpr, g: PrimExpr, scored: Callable[[PrimExpr], PrimExpr]) -> tir.Stmt:
        """One step of online softmax (Milakov and Gimelshein 2018) for position j of key/value head g."""
        d, e = Var("d"), Var("e")
        score, row_max, row_sum, new_max = self.score, self.row_max, self.row_sum, self.new_max
        correction, weight = te.exp(row_max.value - new_max.value), te.exp(score.value - new_max.value)
        value = self._stored_value(sequence, j, g, e)
        return seq(
            score.set(0.0),
            For(d, self.query.shape[0], score.set(score.value + self.query[d] * self._key(sequence, j, g)(d))),
            score.set(scored(score.value)),
            new_max.set(te.max(row_max.value, score.value)),
            row_sum.set(row_sum.value * correction + weight),
            For(e, self.out.shape[2], BufferStore(self.acc, self.acc[e] * correction + weight * value, (e,))),
            row_max.set(new_max.value),
        )

    def _query(self, t: PrimExpr, h: PrimExpr, position: PrimExpr) -> Element:
        def element(i: PrimExpr) -> PrimExpr:
            return te.f32(self.q[t, h + self.first, i])

        if "cos" in self.more:
            cos, sin = self.more["cos"], self.more["sin"]
            return rotated(element, lambda i: cos[t, i], lambda i: sin[t, i], cos.shape[1], self.interleaved)
        return self._rotated_inline(element, position)

    def _key(self, sequence: PrimExpr, j: PrimExpr, g: PrimExpr) -> Element:
        return self._rotated_inline(lambda d: self._stored_key(sequence, j, g, d), j)

    def _stored_key(self, sequence: PrimExpr, j: PrimExpr, g: PrimExpr, d: PrimExpr) -> PrimExpr:
        page, slot = self.pages.existing(sequence, j), j % self.pages.slots
        return self._scaled(te.f32(self.k_pages[self.layer, page, g, d, slot]), "k_scales", page, g, slot)

    def _stored_value(self, sequence: PrimExpr, j: PrimExpr, g: PrimExpr, e: PrimExpr) -> PrimExpr:
        if self.latent:
            return self._stored_key(sequence, j, g, e)
        page, slot = self.pages.existing(sequence, j), j % self.pages.slots
        return self._scaled(te.f32(self.v_pages[self.layer, page, g, slot, e]), "v_scales", page, g, slot)

    def _scaled(self, code: PrimExpr, scales: str, page: PrimExpr, g: PrimExpr, slot: PrimExpr) -> PrimExpr:
        return code * te.f32(self.more[scales][self.layer, page, g, slot]) if scales in self.more else code

    def _rotated_inline(self, element: Element, position: PrimExpr) -> Element:
        """The elements, rotated by the angles of a position if there is an ``inv_freq``."""
        inv_freq = self.more.get("inv_freq")
        if inv_freq is None:
            return element
        factor = self.rotation_factor

        def angle(j: PrimExpr) -> PrimExpr:
            return te.f32(position) * inv_freq[j]

        cos: Element = lambda j: te.cos(angle(j)) * factor  # noqa: E731
        sin: Element = lambda j: te.sin(angle(j)) * factor  # noqa: E731
        return rotated(element, cos, sin, inv_freq.shape[0], self.interleaved)

    def _score(self, product: PrimExpr, distance: PrimExpr, h: PrimExpr) -> PrimExpr:
        score = product * self.scale
        if self.soft_cap:
            score = te.tanh(score / self.soft_cap) * self.soft_cap
        if "slopes" in self.more:
            score = score + self.more["slopes"][h] * te.f32(distance)
        return score + distance_bias(self.more["biases"], h, distance) if "biases" in self.more else score

    def _visible(self, key: PrimExpr, position: PrimExpr) -> PrimExpr | None:
        """Whether position ``key`` is in the window of a query at ``position``; None when there is no window."""
        if not self.window:
            return None
        near = key >= position - position % self.window if self.chunked else key > position - self.window
        near = logical_and(near, key < position + self.window) if "lengths" in self.more else near
        return logical_or(near, key < self.sink_size) if self.sink_size else near


def distance_bias(biases: te.Tensor | tir.Buffer, head: PrimExpr, distance: PrimExpr) -> PrimExpr:
    """The bias in ``biases`` [heads, 2 R + 1] for ``distance``, which is key position - query position."""
    width = static_size(biases.shape[1]) or 0
    if width % 2 != 1:
        raise ValueError(f"biases: got {show_shape(biases.shape)}; expected [heads, an odd number]")
    farthest = const(width // 2, distance.dtype)
    return biases[head, minimum(maximum(distance, -farthest), farthest) + farthest]


def _check_names(names: Sequence[str], kv_dtype: str) -> None:
    unknown = [name for name in names if name not in OPTIONAL_INPUTS]
    if unknown or ("cos" in names) != ("sin" in names) or ("cos" in names and "inv_freq" in names):
        expected = "cos and sin, or inv_freq; lengths; sinks; slopes; biases; k_scales and v_scales"
        raise ValueError(f"names: got {', '.join(names)}; expected {expected}")
    scales = tuple(name for name in ("k_scales", "v_scales") if name in names)
    if len(scales) != (2 if kv_dtype == "int8" else 0):
        expected = "k_scales and v_scales with int8 pages, and with no others"
        raise ValueError(f"names: got {' and '.join(scales) or 'no scales'} with {kv_dtype} pages; expected {expected}")


def _group(heads: int, k_pages: te.Tensor) -> int:
    """The number of query heads per key/value head."""
    kv_heads = static_size(k_pages.shape[2]) or 0
    if not kv_heads or heads % kv_heads:
        raise ValueError(f"heads: got {heads} over {show_shape((k_pages.shape[2],))}; expected a multiple")
    return heads // kv_heads
