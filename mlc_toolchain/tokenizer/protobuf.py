"""The part of the protobuf wire format that a SentencePiece model uses."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from mlc_errors import MLCError


def fields(data: bytes, *, where: str) -> Iterator[tuple[int, int | float | bytes]]:
    """Yield the (number, value) pairs of a message: int for varints, float for 4 bytes, else bytes.

    Raises MLCError for malformed data.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at, where)
        number, wire_type = key >> 3, key & 7
        if wire_type == 0:
            value, at = _varint(data, at, where)
            yield number, value
            continue
        if wire_type == 2:
            size, at = _varint(data, at, where)
        elif wire_type in (1, 5):
            size = 8 if wire_type == 1 else 4
        else:
            raise _broken(at, where)
        if number == 0 or at + size > len(data):
            raise _broken(at, where)
        chunk = data[at : at + size]
        yield number, struct.unpack("<f", chunk)[0] if wire_type == 5 else chunk
        at += size


def _varint(data: bytes, at: int, where: str) -> tuple[int, int]:
    value = 0
    for i in range(10):
        if at + i >= len(data):
            break
        value |= (data[at + i] & 0x7F) << (7 * i)
        if data[at + i] < 0x80:
            return value, at + i + 1
    raise _broken(at, where)


def _broken(at: int, where: str) -> MLCError:
    return MLCError(f"not a SentencePiece model: broken at byte {at}", where=[where])
