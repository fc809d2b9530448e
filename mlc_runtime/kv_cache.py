"""The paged KV cache: which page holds which tokens of which sequence.

The compiled functions only see plain arrays: the pages of all layers, and a page table with one row per sequence.
"""

from __future__ import annotations

import numpy as np

from mlc_errors import ResourceError
from mlc_runtime.arrays import dtype_of, lazy_zeros
from mlc_runtime.metadata import KVCacheSpec


class PagedKVCache:
    """Pages for `num_sequences` sequences of up to `max_tokens` tokens each.

    k_pages: [layers, pages, kv_heads, head_dim, page_size], v_pages: [layers, pages, kv_heads, page_size, head_dim],
    in the cache's dtype. page_table: int32 [num_sequences, pages per sequence], the pages of each sequence in order;
    entries beyond its length are 0. Memory is provided by the system when a page is first written.
    """

    def __init__(self, spec: KVCacheSpec, num_sequences: int, max_tokens: int):
        self.page_size, self.max_tokens = spec.page_size, max_tokens
        per_sequence = -(-max_tokens // spec.page_size)
        num_pages = num_sequences * per_sequence
        dtype = dtype_of(spec.dtype)
        pages = (spec.num_hidden_layers, num_pages, spec.num_key_value_heads)
        self.k_pages = lazy_zeros((*pages, spec.head_dim, spec.page_size), dtype)
        self.v_pages = lazy_zeros((*pages, spec.page_size, spec.head_dim), dtype)
        self.page_table = np.zeros((num_sequences, per_sequence), np.int32)
        self.lengths = [0] * num_sequences
        self._pages_of: list[list[int]] = [[] for _ in range(num_sequences)]
        self._free = list(range(num_pages - 1, -1, -1))

    @property
    def num_free_pages(self) -> int:
        return len(self._free)

    def extend(self, sequence: int, count: int) -> int:
        """Make room for `count` more tokens and return the position of the first.

        Raises ResourceError, and changes nothing, when the sequence would exceed `max_tokens`.
        """
        begin = self.lengths[sequence]
        end = begin + count
        if end > self.max_tokens:
            raise ResourceError(
                f"the context is full: {end} tokens; expected at most {self.max_tokens}",
                hint="shorten the prompt, or compile with a larger context_window_size",
            )
        pages = self._pages_of[sequence]
        while len(pages) * self.page_size < end:
            self.page_table[sequence, len(pages)] = self._free[-1]
            pages.append(self._free.pop())
        self.lengths[sequence] = end
        return begin

    def truncate(self, sequence: int, length: int) -> None:
        """Forget the tokens from position `length` on; their pages become free."""
        if not 0 <= length <= self.lengths[sequence]:
            raise ValueError(f"cannot truncate to {length}: the sequence has {self.lengths[sequence]} tokens")
        pages, keep = self._pages_of[sequence], -(-length // self.page_size)
        self._free.extend(reversed(pages[keep:]))
        self.page_table[sequence, keep : len(pages)] = 0
        del pages[keep:]
        self.lengths[sequence] = length
