"""The paged KV cache: page tables of the sequences of a pool, with pages shared by common prefixes."""

from __future__ import annotations

import numpy as np

from mlc_errors import ResourceError
from mlc_runtime.dtypes import dtype_of
from mlc_runtime.memory import HOST, HostMemory
from mlc_runtime.model_spec import PagedKVSpec

NO_PAGE = -1


class PagedState:
    """The KV pages of a group of layers, and a page table for each row (one per sequence).

    ``inputs`` by name: k_pages [layers, pages, kv_heads, head_dim, page_size] and v_pages [layers, pages, kv_heads,
    page_size, v_head_dim], in the state's dtype; k_scales and v_scales [layers, pages, kv_heads, page_size], if the
    state has scales; page_table int32 [rows, pages of ``max_tokens`` tokens], the pages of
    each sequence in order, NO_PAGE for absent ones. The arrays' addresses do not change, so that calls can be bound to
    them. On the host, the operating system commits a page's memory at the first write.

    A page may be shared by sequences with a common prefix; it is copied before one of them writes into it. With a
    sliding window, pages before the windows of the last ``rollback`` tokens are freed as the sequence grows.
    """

    def __init__(
        self,
        spec: PagedKVSpec,
        rows: int,
        max_tokens: int,
        num_pages: int,
        rollback: int,
        memory: HostMemory = HOST,
    ):
        self.spec, self.num_pages, self._rollback, self._memory = spec, num_pages, rollback, memory
        pages = (spec.num_hidden_layers, num_pages, spec.num_key_value_heads)
        dtype = dtype_of(spec.dtype)
        stored = {"k_pages": memory.zeros((*pages, spec.head_dim, spec.page_size), dtype)}
        if spec.v_head_dim is not None:
            stored["v_pages"] = memory.zeros((*pages, spec.page_size, spec.v_head_dim), dtype)
        if spec.scale_dtype is not None:
            scales = (*pages, spec.page_size), dtype_of(spec.scale_dtype)
            stored |= {name: memory.zeros(*scales) for name in ("k_scales", "v_scales")}
        self.page_table = memory.mirrored((rows, -(-max_tokens // spec.page_size)), np.dtype(np.int32))
        self.inputs = {spec.prefix + name: a for name, a in {**stored, "page_table": self.page_table}.items()}
        if spec.after_source:
            self.inputs["source_lengths"] = memory.mirrored((rows,), np.dtype(np.int32))
        self._stored = list(stored.values())
        self._pages: list[list[int]] = [[] for _ in range(rows)]
        self._writable = [0] * rows  # positions below this are in pages of this row alone
        self._sinks = -(-spec.attention_sink_size // spec.page_size)  # first pages, which a sliding window keeps
        self._slid = [0] * rows  # pages from _sinks to here have been freed by the sliding window
        self._references: list[int] = []  # count for each page that was ever allocated
        self._free: list[int] = []

    @property
    def num_free_pages(self) -> int:
        return len(self._free) + self.num_pages - len(self._references)

    def begin(self, row: int) -> None:
        """Make the row an empty sequence."""
        self.page_table[row] = NO_PAGE
        self._slid[row] = self._sinks
        self._memory.send(self.page_table[row])

    def end(self, row: int) -> None:
        """Remove the row's sequence and free its pages."""
        self._drop(row, 0)

    def reserve(self, row: int, begin: int, end: int) -> None:
        """Make positions ``begin``, the row's length, to ``end`` writable.

        Raises ResourceError, with the contents of all sequences unchanged, when there are not enough pages.
        """
        if end > self._writable[row]:
            self._make_room(row, begin, end)
            self._memory.send(self.page_table[row])

    def can_truncate(self, row: int, length: int) -> bool:
        """Whether the pages that a token at position ``length`` attends to are all present.

        A source is encoded as a whole, so that nothing can follow a part of it.
        """
        if self.spec.after_source and 0 < length <= self.inputs["source_lengths"][row]:
            return False
        window, size = self.spec.sliding_window, self.spec.page_size
        first = 0 if window is None else max(length - window + 1, 0) // size
        return NO_PAGE not in self._pages[row][first : -(-length // size)]

    def truncate(self, row: int, length: int) -> None:
        """Remove the positions from ``length`` on; ``can_truncate`` must hold."""
        self._drop(row, -(-length // self.spec.page_size))

    def fork(self, row: int, length: int, copy: int) -> None:
        """Give the empty row ``copy`` the first ``length`` positions of a row, for which ``can_truncate`` holds."""
        pages = self._pages[row][: -(-length // self.spec.page_size)]
        for page in pages:
            if page != NO_PAGE:
                self._references[page] += 1
        self._pages[copy] = pages
        self.page_table[copy, : len(pages)] = pages
        self._memory.send(self.page_table[copy])
        self._slid[copy] = max(self._sinks, min(self._slid[row], len(pages)))
        self._writable[row] = self._writable[copy] = 0

    def _make_room(self, row: int, begin: int, end: int) -> None:
        pages, size = self._pages[row], self.spec.page_size
        self._slide(row, begin)
        last = begin // size
        shared = begin % size > 0 and self._references[pages[last]] > 1
        missing = -(-end // size) - len(pages)
        if missing + shared > self.num_free_pages:
            raise ResourceError(
                f"the pages for keys and values are full: {self.num_free_pages} of {self.num_pages} pages are free; "
                f"expected {missing + shared}",
                hint="close sessions, or give fewer prompts at a time",
            )
        if shared:
            self._copy(row, last)
        for _ in range(missing):
            pages.append(self._allocate())
            self.page_table[row, len(pages) - 1] = pages[-1]
        self._writable[row] = len(pages) * size

    def _slide(self, row: int, begin: int) -> None:
        """Free the pages that no token from ``begin - rollback`` on attends to."""
        if self.spec.sliding_window is None:
            return
        first = max(begin - self._rollback - self.spec.sliding_window + 1, 0) // self.spec.page_size
        for i in range(self._slid[row], first):
            self._release(self._pages[row][i])
            self._pages[row][i] = self.page_table[row, i] = NO_PAGE
        self._slid[row] = max(self._slid[row], first)

    def _copy(self, row: int, index: int) -> None:
        old, new = self._pages[row][index], self._allocate()
        for array in self._stored:
            self._memory.copy_page(array, old, new)
        self._release(old)
        self._pages[row][index] = self.page_table[row, index] = new

    def _drop(self, row: int, keep: int) -> None:
        pages = self._pages[row]
        for page in reversed(pages[keep:]):
            if page != NO_PAGE:
                self._release(page)
        self.page_table[row, keep : len(pages)] = NO_PAGE
        self._memory.send(self.page_table[row])
        del pages[keep:]
        self._slid[row] = max(self._sinks, min(self._slid[row], keep))
        self._writable[row] = 0

    def _allocate(self) -> int:
        if self._free:
            page = self._free.pop()
            self._references[page] = 1
            return page
        self._references.append(1)
        return len(self._references) - 1

    def _release(self, page: int) -> None:
        self._references[page] -= 1
        if not self._references[page]:
            self._free.append(page)
