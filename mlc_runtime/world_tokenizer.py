"""RWKV's "World" tokenizer: greedy longest match over the text's bytes.

Tokens are byte strings, and every single byte is a token; a character may be split between tokens. The file
``tokenizer_model`` has mlc_llm's format: a MessagePack map from ids to bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken

from mlc_errors import MLCError
from mlc_files import read_limited

FILE_NAME = "tokenizer_model"
END_OF_TEXT = 0
END_NAMES = ("<s>", "<|rwkv_tokenizer_end_of_text|>")
"""Names of token 0 in checkpoints; no text is encoded to it."""
MAX_ID = 1 << 24
MAX_BYTES = 64 << 20
PREFIX_BYTES = 2
MAP_SIZES = {0xDE: 2, 0xDF: 4}
INT_SIZES = {0xCC: 1, 0xCD: 2, 0xCE: 4}
BYTES_SIZES = {0xC4: 1, 0xC5: 2}


@dataclass(frozen=True)
class Encoding:
    """A text as token ids."""

    ids: list[int]


class WorldTokenizer:
    """Implements the methods of ``tokenizers.Tokenizer`` that this project calls.

    tokens: bytes by id. Raises MLCError if a single byte has no token, or an id is out of range.
    """

    def __init__(self, tokens: Mapping[int, bytes], *, where: str):
        missing = set(range(256)) - {token[0] for token in tokens.values() if len(token) == 1}
        if missing:
            raise MLCError(f"the vocabulary has no token for the byte {min(missing)}", where=[where])
        wrong = [i for i in tokens if not END_OF_TEXT < i < MAX_ID]
        if wrong:
            raise MLCError(f"the vocabulary has the id {wrong[0]}; expected 1 to {MAX_ID - 1}", where=[where])
        self._tokens = dict(tokens)
        self._ids = {token: i for i, token in tokens.items()}
        lengths: dict[bytes, set[int]] = {}
        for token in self._ids:
            lengths.setdefault(token[:PREFIX_BYTES], set()).add(len(token))
        self._lengths = {prefix: sorted(found, reverse=True) for prefix, found in lengths.items()}
        self._limit: int | None = None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> Encoding:
        """Encode a text. Raises UnicodeEncodeError for unpaired surrogates."""
        ids: list[int] = []
        data, at = text.encode(), 0
        while at < len(data) and (self._limit is None or len(ids) < self._limit):
            token = self._longest(data, at)
            ids.append(self._ids[token])
            at += len(token)
        return Encoding(ids)

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """Decode ids. Invalid UTF-8 becomes replacement characters; ids outside of the vocabulary are skipped."""
        end = b"" if skip_special_tokens else END_NAMES[0].encode()
        return b"".join(end if i == END_OF_TEXT else self._tokens.get(i, b"") for i in ids).decode(errors="replace")

    def token_to_id(self, token: str) -> int | None:
        return END_OF_TEXT if token in END_NAMES else self._ids.get(token.encode(errors="replace"))

    def id_to_token(self, token_id: int) -> str | None:
        if token_id == END_OF_TEXT:
            return END_NAMES[0]
        token = self._tokens.get(token_id)
        return None if token is None else token.decode(errors="replace")

    def get_vocab_size(self, with_added_tokens: bool = True) -> int:
        return len(self._tokens) + 1

    def get_added_tokens_decoder(self) -> dict[int, AddedToken]:
        return {END_OF_TEXT: AddedToken(END_NAMES[0], special=True)}

    def no_padding(self) -> None:
        """Texts are never padded."""

    def enable_truncation(self, max_length: int) -> None:
        self._limit = max_length

    def no_truncation(self) -> None:
        self._limit = None

    def _longest(self, data: bytes, at: int) -> bytes:
        for length in self._lengths.get(data[at : at + PREFIX_BYTES], ()):
            if (token := data[at : at + length]) in self._ids:
                return token
        return data[at : at + 1]


def load_world_tokenizer(path: Path) -> WorldTokenizer:
    """Read a ``tokenizer_model`` file. Raises MLCError unless it is a MessagePack map from ids to bytes."""
    return WorldTokenizer(_unpacked(read_limited(path, MAX_BYTES), str(path)), where=str(path))


def _unpacked(data: bytes, where: str) -> dict[int, bytes]:
    reader, tokens = _Reader(data, where), {}
    for _ in range(reader.size(MAP_SIZES, 0x80, 0x0F)):
        token_id = reader.size(INT_SIZES, 0x00, 0x7F)
        tokens[token_id] = reader.take(reader.size(BYTES_SIZES))
    if reader.at != len(data):
        raise reader.error()
    return tokens


class _Reader:
    """A reader of MessagePack data."""

    def __init__(self, data: bytes, where: str):
        self.data, self.where, self.at = data, where, 0

    def take(self, count: int) -> bytes:
        found = self.data[self.at : self.at + count]
        if len(found) < count:
            raise self.error()
        self.at += count
        return found

    def size(self, sizes: Mapping[int, int], small: int | None = None, mask: int = 0) -> int:
        """Read a size: after one of the type bytes in ``sizes``, or in the bits ``mask`` of a type byte ``small``."""
        head = self.take(1)[0]
        if small is not None and head & ~mask == small:
            return head & mask
        if head not in sizes:
            raise self.error()
        return int.from_bytes(self.take(sizes[head]), "big")

    def error(self) -> MLCError:
        return MLCError(
            f"{FILE_NAME} is damaged at byte {self.at}; expected a map from ids to bytes",
            where=[self.where],
            hint="gen_config writes it from rwkv_vocab_v20230424.txt",
        )
