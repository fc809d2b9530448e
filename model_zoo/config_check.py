"""Check the values of a config.json, an untrusted file, against the types of a configuration's fields."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from mlc_errors import MLCError, UnsupportedError

SIZE_LIMIT = 1 << 31
SIZE = f"a positive integer below {SIZE_LIMIT}"
# Bounds of sizes that determine the number of loop iterations or the size of tables.
LIMITS = {"num_hidden_layers": 4096, "head_dim": 1 << 16, "num_attention_heads": 1 << 16}


def is_size(value: object) -> bool:
    """Whether ``value`` is a valid size; 0 stands for "not given"."""
    return type(value) is int and 0 <= value < SIZE_LIMIT


def is_finite(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) < 1e30 and not math.isnan(value)


def is_list_of(kind: type, value: object) -> bool:
    return isinstance(value, list | tuple) and all(type(v) is kind for v in value)


_TYPES: dict[str, tuple[Callable[[object], bool], str]] = {
    "int": (is_size, SIZE),
    "float": (is_finite, "a number"),
    "bool": (lambda value: isinstance(value, bool), "true or false"),
    "str": (lambda value: isinstance(value, str), "a string"),
    "Sequence[str]": (lambda value: is_list_of(str, value), "a list of strings"),
    "Sequence[int]": (lambda value: is_list_of(int, value), "a list of integers"),
    "Mapping[str, Any]": (lambda value: isinstance(value, Mapping), "an object"),
}


def check_values(values: Mapping[str, Any], types: Mapping[str, str]) -> None:
    """Raise MLCError for the first value that is not of its field's type or exceeds its limit."""
    for name, value in values.items():
        if value is None and types[name].endswith(" | None"):
            continue
        accepts, expected = _TYPES.get(types[name].removesuffix(" | None"), (lambda _: True, ""))
        if not accepts(value):
            raise MLCError(f"{name}: got {_shown(value)}; expected {expected}", where=["config.json"])
        if name in LIMITS and value > LIMITS[name]:
            raise MLCError(f"{name}: got {value}; expected at most {LIMITS[name]}", where=["config.json"])


def check_chosen_experts(chosen: int, key: str, count: int) -> None:
    """Raise MLCError if ``chosen`` experts per token exceed ``count``, the value of the entry ``key``."""
    if chosen > count:
        raise MLCError(f"num_experts_per_tok: got {chosen}; expected at most {key}, {count}", where=["config.json"])


def invalid(name: str, value: object, expected: str) -> MLCError:
    """The error for an invalid value."""
    return MLCError(f"{name}: got {_shown(value)}; expected {expected}", where=["config.json"])


def unsupported(name: str, value: object, expected: str) -> UnsupportedError:
    """The error for a value that changes the computation in a way that is not implemented."""
    return UnsupportedError(f"{name}: got {_shown(value)}; expected {expected}", where=["config.json"])


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
