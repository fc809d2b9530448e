"""Weights whose ranges of rows have different group schemes: the codec of kind "rows".

Token ids are roughly in the order of their frequency, since tokenizers assign them in the order of merges. The first
rows of an output head are therefore those that predictions depend on most, and deserve more bits than the last ones.
Tensors of range i are named ``parts.i.q_weight`` and ``parts.i.q_scale``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from quantization import group
from quantization.schemes import Scheme

Encode = Callable[[group.Blocks, tuple[int, ...], Scheme], dict[str, np.ndarray]]
"""From the blocks of a range of rows, its shape and its scheme to codes and scales."""


def tensors(shape: tuple[int, ...], scheme: Scheme, layout: str) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of the codes and scales of all ranges of a weight of ``shape`` [N, K]."""
    return {
        part_name(i, kind): described
        for i, (rows, part) in enumerate(scheme.of_rows(shape[0]))
        for kind, described in group.tensors((rows.stop - rows.start, shape[1]), part, layout).items()
    }


def part_name(number: int, kind: str) -> str:
    return f"parts.{number}.{kind}"


def encode_rows(blocks: group.Blocks, shape: tuple[int, ...], scheme: Scheme, layout: str) -> dict[str, np.ndarray]:
    """As ``group.encode_rows``, for each range."""
    return encoded(blocks, shape, scheme, partial(group.encode_rows, layout=layout))


def encoded(blocks: group.Blocks, shape: tuple[int, ...], scheme: Scheme, encode: Encode) -> dict[str, np.ndarray]:
    """The tensors of all ranges of a weight of ``shape``; ``encode`` returns those of one."""
    made: dict[str, np.ndarray] = {}
    for i, (rows, part) in enumerate(scheme.of_rows(shape[0])):
        tensors = encode(partial(_in_range, blocks, rows), (rows.stop - rows.start, shape[1]), part)
        made |= {part_name(i, kind): array for kind, array in tensors.items()}
    return made


def decode_rows(
    made: dict[str, np.ndarray], scheme: Scheme, shape: tuple[int, ...], layout: str
) -> Iterator[np.ndarray]:
    """Dequantize to blocks of rows [n, K], in order."""
    for i, (rows, part) in enumerate(scheme.of_rows(shape[0])):
        of_part = {kind: made[part_name(i, kind)] for kind in ("q_weight", "q_scale")}
        yield from group.decode_rows(of_part, part, (rows.stop - rows.start, shape[1]), layout)


def _in_range(blocks: group.Blocks, rows: slice) -> Iterator[np.ndarray]:
    """The rows of a range, in pieces. blocks() yields blocks of consecutive rows [n, K]."""
    start = 0
    for block in blocks():
        low, high = max(rows.start - start, 0), min(rows.stop - start, len(block))
        if low < high:
            yield block[low:high]
        start += len(block)
