"""One sequence of token ids through a context of llama.cpp; runs in llama.cpp's environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import llama_cpp


def decode(context: Any, ids: Sequence[int], first: int = 0) -> None:
    """Read the ids in one batch, from an empty cache, with logits from position ``first`` on.

    A token without logits takes no part in the last layer's MLP. Raises SystemExit if llama.cpp refuses the batch.
    """
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
    batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for position, token in enumerate(ids):
        batch.token[position], batch.pos[position] = token, position
        batch.n_seq_id[position], batch.seq_id[position][0] = 1, 0
        batch.logits[position] = position >= first
    failed = llama_cpp.llama_decode(context, batch)
    llama_cpp.llama_batch_free(batch)
    if failed:
        raise SystemExit(f"llama_decode gives {failed} for {len(ids)} tokens")
