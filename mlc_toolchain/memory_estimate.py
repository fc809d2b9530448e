"""Estimate a model's memory at run time: weights, KV cache, and the number of full contexts that fit."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from mlc_errors import UsageError
from mlc_toolchain.model_sizes import ModelSizes

_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


@dataclass(frozen=True)
class MemoryEstimate:
    """Memory in bytes. kv_full_context_bytes: of one sequence of full context, including recurrent states.
    largest_batch: number of full-context sequences that fit beside the weights.
    """

    weight_bytes: int
    kv_bytes_per_token: int
    kv_full_context_bytes: int
    largest_batch: int | None = None
    notes: tuple[str, ...] = ()


def estimate_memory(sizes: ModelSizes, memory: int | None = None) -> MemoryEstimate:
    """Estimate the memory; largest_batch only if `memory` (bytes) is given, at most the model's max_batch_size."""
    full = sizes.kv_bytes_per_token * sizes.kv_tokens + sizes.state_bytes
    estimate = MemoryEstimate(sizes.weight_bytes, sizes.kv_bytes_per_token, full)
    if memory is None or not full:
        return estimate
    free = memory - sizes.weight_bytes
    if free >= full:
        return replace(estimate, largest_batch=min(free // full, sizes.get("max_batch_size", 1)))
    per_token = sizes.kv_bytes_per_token
    tokens = max(free - sizes.state_bytes, 0) // per_token if per_token else 0
    way_out = f"--context-window-size {tokens} would fit" if tokens else "the weights alone take more"
    return replace(estimate, largest_batch=0, notes=(f"not one sequence of full context fits; {way_out}",))


def parse_bytes(text: str) -> int:
    """Parse "8GiB" to 8589934592, "500 MB" to 500000000, "1024" to 1024. Raises UsageError for other texts."""
    found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*([kmgt]?)(i?)b?\s*", text, re.IGNORECASE)
    if found is None or (found[3] and not found[2]):
        raise UsageError(f"not an amount of memory: got {text[:40]!r}; expected a number with a unit, such as 8GiB")
    base = 1024 if found[3] else 1000
    return int(float(found[1]) * base ** _UNITS[found[2].lower()])
