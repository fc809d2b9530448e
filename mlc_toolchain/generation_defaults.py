"""Sampling defaults and special ids, from generation_config.json, config.json and the tokenizer, in this order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlc_errors import MLCError
from mlc_toolchain.chat_config import is_id, is_int, is_number
from mlc_toolchain.tokenizer.files import TokenizerFiles

# name -> (default, what is allowed, check)
_SAMPLING: dict[str, tuple[float, str, Callable[[float], bool]]] = {
    "temperature": (1.0, "a number of at least 0", lambda v: v >= 0),
    "presence_penalty": (0.0, "a number from -2 to 2", lambda v: -2 <= v <= 2),
    "frequency_penalty": (0.0, "a number from -2 to 2", lambda v: -2 <= v <= 2),
    "repetition_penalty": (1.0, "a number above 0", lambda v: v > 0),
    "top_p": (1.0, "a number above 0, up to 1", lambda v: 0 < v <= 1),
}
_FILTERS: dict[str, tuple[str, Callable[[float], bool]]] = {
    "top_k": ("an integer of at least 0", lambda v: is_int(v) and v >= 0),
    "min_p": ("a number from 0 to 1", lambda v: 0 <= v <= 1),
    "typical_p": ("a number above 0, up to 1", lambda v: 0 < v <= 1),
}
"""Keys of generation_config.json that are written to mlc-chat-config.json only if the checkpoint sets them."""
LOG = logging.getLogger(__name__)
WITHOUT_EFFECT = (
    *("num_beams", "no_repeat_ngram_size", "bad_words_ids", "suppress_tokens"),
    *("begin_suppress_tokens", "max_new_tokens", "min_new_tokens", "stop_strings"),
)
"""Keys of generation_config.json that change what transformers generates, and have no place in mlc-chat-config.json."""
_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


@dataclass(frozen=True)
class GenerationDefaults:
    """A checkpoint's generation defaults. sampling: temperature, penalties, top_p, and other filters if set.

    eos_token_ids: all ids that end an answer. notes: for the user.
    """

    sampling: Mapping[str, float]
    pad_token_id: int
    bos_token_id: int
    eos_token_ids: tuple[int, ...]
    notes: tuple[str, ...] = ()

    @property
    def eos_token_id(self) -> int | tuple[int, ...]:
        """The value for mlc-chat-config.json: one id, or several."""
        return self.eos_token_ids[0] if len(self.eos_token_ids) == 1 else self.eos_token_ids


def generation_defaults(
    generation_config: Mapping[str, Any], config: Mapping[str, Any], tokenizer: TokenizerFiles | None
) -> GenerationDefaults:
    """Look up all defaults; config is config.json. Raises MLCError for an invalid value.

    Ids outside of the tokenizer's vocabulary are dropped, with a note.
    """
    files = {"generation_config.json": generation_config, "config.json": config}
    sampling = {name: _sampling(name, files) for name in _SAMPLING} | _filters(generation_config)
    found = {name: _ids(name, files) for name in _IDS}
    count = tokenizer.active_vocab_size if tokenizer else config.get("vocab_size", 0)
    ids = {name: [i for i in given if i < count] for name, given in found.items()}
    all_eos = dict.fromkeys([*ids["eos_token_id"], *_token_id(tokenizer, "eos_token")])
    return GenerationDefaults(
        sampling,
        pad_token_id=[*ids["pad_token_id"], *_token_id(tokenizer, "pad_token"), _IDS["pad_token_id"]][0],
        bos_token_id=[*ids["bos_token_id"], *_token_id(tokenizer, "bos_token"), _IDS["bos_token_id"]][0],
        eos_token_ids=tuple(all_eos or [_IDS["eos_token_id"]]),
        notes=(
            *(
                f"{name} {i} is left out: the tokenizer has the ids 0 to {count - 1}"
                for name, given in found.items()
                for i in given
                if i not in ids[name]
            ),
            *(
                f"{name} {str(generation_config[name])[:40]} of generation_config.json is not used"
                for name in WITHOUT_EFFECT
                if generation_config.get(name) is not None
            ),
        ),
    )


def _sampling(name: str, files: Mapping[str, Mapping[str, Any]]) -> float:
    default, allowed, valid = _SAMPLING[name]
    for file, values in files.items():
        value = values.get(name)
        if value is None:
            continue
        if not is_number(value) or not valid(value):
            raise MLCError(f"{name} is {str(value)[:80]}; expected {allowed}", where=[file])
        LOG.info("[%s] %s is %r", file, name, value)
        return float(value)
    LOG.info("%s is in no file; it is %r", name, default)
    return default


def _filters(generation_config: Mapping[str, Any]) -> dict[str, float]:
    found = {name: generation_config[name] for name in _FILTERS if generation_config.get(name) is not None}
    for name, value in found.items():
        allowed, valid = _FILTERS[name]
        if not is_number(value) or not valid(value):
            raise MLCError(f"{name} is {str(value)[:80]}; expected {allowed}", where=["generation_config.json"])
        LOG.info("[generation_config.json] %s is %r", name, value)
    return found


def _ids(name: str, files: Mapping[str, Mapping[str, Any]]) -> Sequence[int]:
    """The ids in the first file that has any; negative ids are ignored."""
    for file, values in files.items():
        value = values.get(name)
        given = [v for v in (value if isinstance(value, list) else [value]) if v is not None]
        ids = [v for v in given if not (type(v) is int and v < 0)]
        wrong = [v for v in ids if not is_id(v)]
        if wrong:
            raise MLCError(f"{name} is {str(value)[:80]}; expected a token id or a list of them", where=[file])
        if ids:
            LOG.info("[%s] %s is %r", file, name, value)
            return ids
    return []


def _token_id(tokenizer: TokenizerFiles | None, key: str) -> list[int]:
    """The id of a token named in tokenizer_config.json as a list of one; empty if there is none."""
    text = tokenizer.token(key) if tokenizer else None
    token_id = tokenizer.tokenizer.token_to_id(text) if tokenizer and text is not None else None
    return [] if token_id is None else [token_id]
