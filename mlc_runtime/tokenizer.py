"""Text to token ids and back, whole or token by token."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import tokenizers

from mlc_errors import MLCError, UsageError, check_address_space
from mlc_files import read_limited
from mlc_runtime import world_tokenizer
from mlc_runtime.world_tokenizer import WorldTokenizer

ADDRESSES, ADDRESSES_PER_BYTE = 64 << 20, 16
"""Address space for loading a file in bytes: constant, and per byte of the file (12 have been observed)."""
AnyTokenizer = tokenizers.Tokenizer | WorldTokenizer
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
MAX_HELD_TOKENS = 32
CONFIG_BYTES, TOKENIZER_BYTES = 16 << 20, 256 << 20


class Tokenizer:
    """The tokenizer of a model folder: tokenizer.json, and the special tokens in tokenizer_config.json.

    RWKV has ``tokenizer_model`` instead. Raises MLCError when both are missing, or the file is damaged.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self._tokenizer = _open(self.folder)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        added = self._tokenizer.get_added_tokens_decoder()
        self.special_ids = frozenset(i for i, token in added.items() if token.special)

    @cached_property
    def config(self) -> dict:
        """The content of tokenizer_config.json; empty when there is none."""
        path = self.folder / "tokenizer_config.json"
        try:
            config = json.loads(read_limited(path, CONFIG_BYTES)) if path.is_file() else {}
        except (ValueError, RecursionError) as e:
            raise MLCError(f"tokenizer_config.json is not JSON: {e}", where=[str(path)]) from None
        return config if isinstance(config, dict) else {}

    def special_token(self, name: str) -> str | None:
        """The text of "bos_token", "eos_token" …, None when the model has none."""
        token = self.config.get(name)
        return token.get("content") if isinstance(token, dict) else token

    @property
    def vocab_size(self) -> int:
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of `text`. Special tokens written in the text are recognized."""
        try:
            return self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        except (UnicodeEncodeError, TypeError):
            raise UsageError("the text is not valid Unicode: it has unpaired surrogates") from None

    def encode_within(self, text: str, max_tokens: int) -> list[int]:
        """Encode and truncate the text to at most ``max_tokens`` ids, keeping special tokens at the end."""
        self._tokenizer.enable_truncation(max_tokens)
        try:
            return self.encode(text)
        finally:
            self._tokenizer.no_truncation()

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """Text of token ids; unknown ids are skipped."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def token_id(self, token: str) -> int | None:
        return self._tokenizer.token_to_id(token)

    def token(self, token_id: int) -> str | None:
        """The vocabulary entry of a token, None for an unknown id."""
        return self._tokenizer.id_to_token(token_id)

    @cached_property
    def vocabulary(self) -> tuple[str | None, ...]:
        """The vocabulary entry of every token id; None for unused ids."""
        return tuple(map(self.token, range(self.vocab_size)))

    def stream(self) -> StreamDecoder:
        """A decoder to be fed one token at a time."""
        return StreamDecoder(self)


class StreamDecoder:
    """Decodes token by token: the concatenated pieces are the text of all tokens, and no piece splits a character.

    Each step decodes a short window: the tokens of the last piece, because a tokenizer may treat the first token of a
    text differently, and the tokens whose text is not complete yet.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._last_piece = 0  # tokens of the window that belong to the last piece
        self._sent = 0  # characters of the window's text that were returned

    def add(self, token: int) -> str:
        """Add a token; returns the text that it completes, empty within a character."""
        if token in self._tokenizer.special_ids:
            return ""
        self._window.append(token)
        text = self._tokenizer.decode(self._window)
        overdue = len(self._window) - self._last_piece > MAX_HELD_TOKENS
        complete = overdue or not text.endswith(REPLACEMENT)
        final = text if complete else text.rstrip(REPLACEMENT)
        piece, self._sent = final[self._sent :], max(self._sent, len(final))
        if overdue or (complete and piece):
            self._window = self._window[self._last_piece :]
            self._last_piece = len(self._window)
            self._sent = len(self._tokenizer.decode(self._window))
        return piece

    def finish(self) -> str:
        """The remaining text: replacement characters for the bytes of an incomplete character."""
        piece = self._tokenizer.decode(self._window)[self._sent :]
        self._window, self._last_piece, self._sent = [], 0, 0
        return piece


class StopMatcher:
    """Cuts a stream of text at the first stop string; holds back a suffix that may begin one."""

    def __init__(self, stops: Sequence[str]):
        self._stops = list(stops)
        self._held = ""

    def add(self, piece: str) -> tuple[str, bool]:
        """Add text; returns the text that is final, without the stop string, and whether a stop string was found."""
        text = self._held + piece
        found = [at for s in self._stops if (at := text.find(s)) >= 0]
        if found:
            self._held = ""
            return text[: min(found)], True
        held = max((_overlap(text, s) for s in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held], False

    def finish(self) -> str:
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest suffix of `text` that is a proper prefix of `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)


def _open(folder: Path) -> AnyTokenizer:
    path, world = folder / "tokenizer.json", folder / world_tokenizer.FILE_NAME
    if path.is_file():
        if path.stat().st_size > TOKENIZER_BYTES:
            raise MLCError(f"the tokenizer is larger than {TOKENIZER_BYTES >> 20} MiB", where=[str(path)])
        check_address_space("the tokenizer", ADDRESSES + ADDRESSES_PER_BYTE * path.stat().st_size)
        return _load(path)
    if world.is_file():
        return world_tokenizer.load_world_tokenizer(world)
    raise MLCError(f"{path} is missing", hint="gen_config copies or converts the tokenizer")


def _load(path: Path) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_buffer(path.read_bytes())  # from_file takes no names that are not UTF-8
    except BaseException as e:  # a panic of the Rust library is not an Exception
        if not isinstance(e, Exception) and type(e).__name__ != "PanicException":
            raise
        raise MLCError(f"tokenizer.json is not readable: {str(e)[:300]}", where=[str(path)]) from None
