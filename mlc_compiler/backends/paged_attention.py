"""Static sizes, options and index expressions of the operator ``nn.paged_attention``, for hand-written kernels."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..ir.expr import PrimExpr, cast, const, logical_and, logical_or, maximum, minimum
from ..relax.info import static_size
from ..relax.ops.attention import NO_MAXIMUM, Element, Pages, as_index, clamped, distance_bias, rotated
from ..relax.tensor_call import NoKernel
from ..tir import te
from ..tir.nodes import Buffer, buffer

FARTHEST = 1 << 30
"""Positions are clamped to this, so that sums of two fit into int32."""
MASKED = -3e38
"""The score of a masked position: ``exp(MASKED - max)`` is 0 for any maximum."""


class RotatedPairs:
    """Indices of the elements that a rotary embedding combines: adjacent if interleaved, else ``pairs`` apart."""

    pairs: int
    interleaved: bool

    def pair(self, i: PrimExpr) -> PrimExpr:
        """Index of the first element of rotated pair ``i``."""
        return i * 2 if self.interleaved else i

    def partner(self, i: PrimExpr) -> PrimExpr:
        """Index of the second element of rotated pair ``i``."""
        return i * 2 + 1 if self.interleaved else i + self.pairs


@dataclass(eq=False)
class PagedAttention(RotatedPairs):
    """Operands, sizes and expressions of one call; positions are int32.

    kv_heads, group: key/value heads, and query heads of each. key, value: elements of a key and a value. page: slots of
    a page. pairs: rotated pairs of elements. latent: values are the first elements of the keys. cross: the lengths of
    contexts are given. scaled: pages hold codes, which are multiplied by the scale of their slot. Raises NoKernel if
    one of these sizes is symbolic.
    """

    q: Buffer
    k_pages: Buffer
    v_pages: Buffer
    page_table: Buffer
    token_seq: Buffer
    token_pos: Buffer
    layer: PrimExpr
    more: dict[str, Buffer]
    attrs: dict[str, Any]

    out: Buffer = field(init=False)

    def __post_init__(self) -> None:
        a = self.attrs
        self.heads, self.first, self.scale, self.window = a["heads"], a["first"], a["scale"], a["window"]
        self.chunked = a["chunked"]
        self.sink_size, self.soft_cap, self.factor = a["sink_size"], a["soft_cap"], a["rotation_factor"]
        self.single_query, self.interleaved, self.latent = a["single_query"], a["interleaved"], bool(a["value_size"])
        self.rotated, self.inline, self.cross = "cos" in self.more, "inv_freq" in self.more, "lengths" in self.more
        self.scaled = "k_scales" in self.more
        self.has_sinks, self.has_slopes = "sinks" in self.more, "slopes" in self.more
        self.has_biases = "biases" in self.more
        angles = self.more.get("cos" if self.rotated else "inv_freq")
        self.pairs = 0 if angles is None else known_size(angles.shape[-1])
        self.kv_heads, self.key, self.page = (known_size(s) for s in self.k_pages.shape[2:])
        self.value = a["value_size"] or known_size(self.v_pages.shape[4])
        self.group = self.heads // self.kv_heads
        self.n, self.max_pages, self.num_pages = self.q.shape[0], self.page_table.shape[1], self.k_pages.shape[1]
        self.table = Pages(self.page_table, self.num_pages, self.page)
        self.limit = self.table.limit
        self.out = buffer("attention", (self.n, self.heads, self.value), self.q.dtype)

    # -- tokens

    def sequence(self, token: PrimExpr) -> PrimExpr:
        """Sequence of a token, int64."""
        return self.table.sequence(self.token_seq[token])

    def position(self, token: PrimExpr) -> PrimExpr:
        """Position of a token, clamped so that sums of positions do not overflow."""
        return minimum(maximum(self.token_pos[token], const(-1, "int32")), const(FARTHEST, "int32"))

    def end(self, token: PrimExpr) -> PrimExpr:
        """End of the positions that a token attends to."""
        given = self.position(token) + 1
        if self.cross:
            given = te.if_then_else(self.limit > 0, self.more["lengths"][self.sequence(token)], const(0, "int32"))
        if self.cross and self.window:
            given = minimum(given, maximum(self.position(token) + self.window, const(self.sink_size, "int32")))
        return minimum(maximum(given, const(0, "int32")), cast("int32", self.limit))

    def first_seen(self, token: PrimExpr) -> PrimExpr:
        """The first position in a token's window."""
        return self.window_start(self.position(token))

    def window_start(self, position: PrimExpr) -> PrimExpr:
        """The first position in the window of a token at ``position``."""
        before = position % self.window if self.chunked else const(self.window - 1, "int32")
        return maximum(position - before, const(0, "int32"))

    def page_of(self, sequence: PrimExpr, position: PrimExpr) -> PrimExpr:
        """The page of a position (int64), int64; the last page for positions beyond it."""
        row = minimum(position // self.page, self.max_pages - 1)
        return clamped(as_index(self.page_table[sequence, row]), self.num_pages)

    # -- rotation

    def rotated_query(self, token: PrimExpr, head: PrimExpr, d: PrimExpr) -> PrimExpr:
        """Element d of a token's query, rotated, float32."""

        def element(i: PrimExpr) -> PrimExpr:
            return cast("float32", self.q[token, head + self.first, i])

        return self._rotated(element, partial(self.query_cos, token=token), partial(self.query_sin, token=token))(d)

    def rotated_key(self, page: PrimExpr, g: PrimExpr, d: PrimExpr, slot: PrimExpr, position: PrimExpr) -> PrimExpr:
        """Element d of the key in a slot, without its scale, rotated by ``inv_freq`` if that is given, float32."""

        def element(i: PrimExpr) -> PrimExpr:
            return cast("float32", self.k_pages[self.layer, page, g, i, slot])

        if not self.inline:
            return element(d)
        return self._rotated(element, partial(self.cos, position=position), partial(self.sin, position=position))(d)

    def _rotated(self, element: Element, cos: Element, sin: Element) -> Element:
        return rotated(element, cos, sin, const(self.pairs, "int64"), self.interleaved) if self.pairs else element

    def query_cos(self, i: PrimExpr, token: PrimExpr) -> PrimExpr:
        """Cosine of the angle of a token's pair ``i``."""
        return self.more["cos"][token, i] if self.rotated else self.cos(i, self.position(token))

    def query_sin(self, i: PrimExpr, token: PrimExpr) -> PrimExpr:
        """Sine of the angle of a token's pair ``i``."""
        return self.more["sin"][token, i] if self.rotated else self.sin(i, self.position(token))

    def cos(self, i: PrimExpr, position: PrimExpr) -> PrimExpr:
        """Cosine of the angle of pair ``i`` at a position, by ``inv_freq``."""
        return te.cos(self._angle(i, position)) * self.factor

    def sin(self, i: PrimExpr, position: PrimExpr) -> PrimExpr:
        """Sine of the angle of pair ``i`` at a position, by ``inv_freq``."""
        return te.sin(self._angle(i, position)) * self.factor

    def _angle(self, i: PrimExpr, position: PrimExpr) -> PrimExpr:
        return cast("float32", position) * self.more["inv_freq"][i]

    # -- scales, float32; of pages that have them

    def key_scale(self, page: PrimExpr, g: PrimExpr, slot: PrimExpr) -> PrimExpr:
        """The factor of the key in a slot."""
        return cast("float32", self.more["k_scales"][self.layer, page, g, slot])

    def value_scale(self, page: PrimExpr, g: PrimExpr, slot: PrimExpr) -> PrimExpr:
        """The factor of the value in a slot."""
        return cast("float32", self.more["v_scales"][self.layer, page, g, slot])

    # -- softmax

    def masked_score(
        self, product: PrimExpr, head: PrimExpr, j: PrimExpr, position: PrimExpr, end: PrimExpr
    ) -> PrimExpr:
        """The score of a query at ``position``, which attends to positions below ``end``, and the key at ``j``.

        product: their scaled product. ``MASKED`` where the key is not visible.
        """
        score = product
        if self.soft_cap:
            score = te.tanh(score / self.soft_cap) * self.soft_cap
        if self.has_slopes:
            score = score + self.more["slopes"][head] * cast("float32", j - position)
        if self.has_biases:
            score = score + distance_bias(self.more["biases"], head, j - position)
        visible = j < end
        if self.window:
            near = j >= self.window_start(position) if self.chunked else j > position - self.window
            if self.sink_size:
                near = logical_or(near, j < self.sink_size)
            visible = logical_and(visible, near)
        return te.select(visible, score, const(MASKED, "float32"))

    def start_max(self, head: PrimExpr, is_first: PrimExpr | None = None) -> PrimExpr:
        """Initial maximum of a row; the learned sink counts in the part of its context for which ``is_first`` holds."""
        return self._start(cast("float32", self.more["sinks"][head]) if self.has_sinks else None, NO_MAXIMUM, is_first)

    def start_sum(self, is_first: PrimExpr | None = None) -> PrimExpr:
        """Initial sum of a row; see ``start_max``."""
        return self._start(const(1.0, "float32") if self.has_sinks else None, 0.0, is_first)

    @staticmethod
    def _start(of_sink: PrimExpr | None, without: float, is_first: PrimExpr | None) -> PrimExpr:
        if of_sink is None or is_first is None:
            return const(without, "float32") if of_sink is None else of_sink
        return te.if_then_else(is_first, of_sink, const(without, "float32"))


def known_size(size: PrimExpr) -> int:
    """A static size; raises NoKernel for a symbolic one."""
    static = static_size(size)
    if static is None:
        raise NoKernel
    return static
