"""Bytes and operations of a call of a compiled function, from the accounting in the library's metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlc_errors import MLCError
from mlc_runtime.metadata import parsed
from mlc_runtime.shapes import evaluate


@dataclass(frozen=True)
class KernelCost:
    """The cost of one call of a kernel. nbytes: weights, activations, and keys and values that it attends to.

    operations: floating-point operations of its reductions; None if they are not counted, as in attention.
    """

    kernel: str
    calls: int
    nbytes: int
    operations: int | None


@dataclass(frozen=True)
class StepCost:
    """The cost of one call of a function. nbytes includes weight_bytes. operations: sum over kernels with a count."""

    kernels: list[KernelCost]
    weight_bytes: int

    @property
    def nbytes(self) -> int:
        return sum(k.calls * k.nbytes for k in self.kernels)

    @property
    def operations(self) -> int:
        return sum(k.calls * (k.operations or 0) for k in self.kernels)


def step_cost(metadata: Mapping[str, Any], function: str, tokens: int, positions: int = 0) -> StepCost:
    """The cost of a call with ``tokens`` tokens that attend to ``positions`` stored positions in all.

    Keys and values are divided evenly among the kernels that read them; appended ones are not counted. Raises MLCError
    for a library without accounting.
    """
    if "accounting" not in metadata:
        raise MLCError("the library's metadata has no accounting of kernels", hint="compile the model again")
    return parsed(lambda: _cost(metadata, metadata["accounting"][function], tokens, positions))


def _cost(metadata: Mapping[str, Any], rows: list[dict[str, Any]], tokens: int, positions: int) -> StepCost:
    def size(value: int | str | None) -> int:
        return 0 if value is None else evaluate(value, _Sizes(tokens))

    readers = sum(row["calls"] for row in rows if row["reads_state"])
    cache = positions * int(metadata["kv_bytes_per_token"]) // max(readers, 1)
    kernels = [
        KernelCost(
            row["kernel"],
            int(row["calls"]),
            size(row["weight_bytes"]) + size(row["activation_bytes"]) + (cache if row["reads_state"] else 0),
            None if row["operations"] is None else size(row["operations"]),
        )
        for row in rows
    ]
    return StepCost(kernels, sum(int(row["calls"]) * size(row["weight_bytes"]) for row in rows))


class _Sizes(dict[str, int]):
    """Maps every symbolic size of a step to its number of tokens."""

    def __init__(self, tokens: int):
        super().__init__()
        self.tokens = tokens

    def __missing__(self, name: str) -> int:
        return self.tokens
