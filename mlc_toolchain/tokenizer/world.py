"""Convert RWKV's "World" vocabularies, from a text file or a GGUF file, to ``tokenizer_model``."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

from mlc_errors import MLCError

SOURCE = "rwkv_vocab_v20230424.txt"
MODEL_NAME = "rwkv"
"""The value of ``tokenizer.ggml.model`` in a GGUF file."""
CONTROL, UNUSED = 3, 5
ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|(.))", re.DOTALL)
CONTROLS = {"t": "\t", "n": "\n", "r": "\r"}


def from_text(data: bytes, *, where: str) -> dict[int, bytes]:
    """Parse tokens by id. Each line has the id, a Python literal (str or bytes), and the number of bytes."""
    tokens = {}
    for number, line in enumerate(data.decode(errors="replace").splitlines(), 1):
        first, _, rest = line.partition(" ")
        literal, _, size = rest.rpartition(" ")
        token = _literal(literal)
        if token is None or not (first.isdecimal() and size.isdecimal()) or len(token) != int(size[:9]):
            raise MLCError(
                f"got {line[:60]!r}; expected an id, a literal and its number of bytes",
                where=[f"{where}, line {number}"],
            )
        tokens[int(first[:9])] = token
    return tokens


def from_escaped(texts: Sequence[str], types: Sequence[int], *, where: str) -> dict[int, bytes]:
    """Parse tokens by id from texts with Python's byte escapes; control and unused tokens are omitted."""
    tokens = {}
    for i, (text, kind) in enumerate(zip(texts, types, strict=True)):
        if kind in (CONTROL, UNUSED):
            continue
        try:
            tokens[i] = ESCAPE.sub(_unescaped, text).encode("latin-1")
        except UnicodeEncodeError:
            raise MLCError(f"the token {i} is {text[:60]!r}; expected bytes, escaped", where=[where]) from None
    return tokens


def packed(tokens: Mapping[int, bytes]) -> bytes:
    """Serialize the tokens as a MessagePack map with the shortest headers."""
    count = len(tokens)
    parts = [bytes([0x80 | count]) if count < 16 else _head(count, {0xDE: 2, 0xDF: 4})]
    for i, token in tokens.items():
        parts += [bytes([i]) if i < 128 else _head(i, {0xCC: 1, 0xCD: 2, 0xCE: 4})]
        parts += [_head(len(token), {0xC4: 1, 0xC5: 2, 0xC6: 4}), token]
    return b"".join(parts)


def _head(value: int, sizes: Mapping[int, int]) -> bytes:
    kind, size = next((kind, size) for kind, size in sizes.items() if value < 256**size)
    return bytes([kind]) + value.to_bytes(size, "big")


def _literal(text: str) -> bytes | None:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if isinstance(value, str):
        return value.encode(errors="replace")
    return value if isinstance(value, bytes) else None


def _unescaped(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else CONTROLS.get(found[2], found[2])
