"""MLC conversation templates: registry, reading, checking, rendering.

A template is a file in ``configs/conversation``; omitted keys have the schema's defaults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from mlc_errors import MLCError, UsageError
from mlc_runtime.chat_template import render_conversation
from mlc_toolchain.readers.bounded_json import read_json_object

DIRECTORY = Path(__file__).resolve().parents[1] / "configs" / "conversation"
PLACEHOLDERS = {"user": "{user_message}", "assistant": "{assistant_message}", "tool": "{tool_message}"}


@dataclass(frozen=True)
class Conversation:
    """One template. Prompt = system part, then per message role + role_content_sep + content + separator.

    seps: one string, or two: after the user's and after the assistant's message. The prompt of an answer ends with the
    assistant's role + role_empty_sep. system_prefix_token_ids come before the text's tokens.
    """

    name: str | None = None
    system_template: str = "{system_message}"
    system_message: str = ""
    system_prefix_token_ids: tuple[int, ...] | None = None
    add_role_after_system_message: bool = True
    roles: Mapping[str, str] = field(default_factory=dict)
    role_templates: Mapping[str, str] = field(default_factory=lambda: dict(PLACEHOLDERS))
    messages: tuple[tuple[str, str | None], ...] = ()
    seps: tuple[str, ...] = ("",)
    role_content_sep: str = ""
    role_empty_sep: str = ""
    stop_str: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    strip_reasoning_in_history: bool = False
    function_string: str = ""
    use_function_calling: bool = False

    @staticmethod
    def from_dict(data: object, *, where: str) -> Conversation:
        """Read a template from a JSON object; `where` names its file in errors."""
        return _read(data, where)

    def to_dict(self) -> dict[str, Any]:
        """All keys in mlc_llm's order; optional keys without a value (name, system_prefix_token_ids) are omitted."""
        return {k: _plain(v) for k, v in asdict(self).items() if v is not None}

    def render(self, messages: Sequence[dict], *, add_generation_prompt: bool = True) -> str:
        """The prompt's text for `messages` (dicts with role and content), without the prefix tokens."""
        return render_conversation(self.to_dict(), messages, add_generation_prompt=add_generation_prompt)


def template_names() -> list[str]:
    """The registered names, sorted."""
    return sorted((p.stem for p in DIRECTORY.glob("*.json")), key=str.casefold)


@cache
def load_template(name: str) -> Conversation:
    """The registered template `name`. Raises UsageError with a list of names if there is none."""
    if name not in template_names():
        raise UsageError(
            f"conversation template {name!r} is not registered; expected auto or one of {', '.join(template_names())}"
        )
    path = DIRECTORY / f"{name}.json"
    return Conversation.from_dict(read_json_object(path), where=str(path))


def _plain(value: object) -> object:
    return json.loads(json.dumps(value))


def _read(data: object, where: str) -> Conversation:
    if not isinstance(data, dict):
        raise _wrong("conversation template", data, "a JSON object", where)
    known = {f.name for f in fields(Conversation)}
    unknown = sorted(set(data) - known)
    if unknown:
        raise MLCError(f"conversation template has unknown keys: {', '.join(unknown)}", where=[where])
    values: dict[str, Any] = {key: _CHECKS[key](key, value, where) for key, value in data.items()}
    values["role_templates"] = PLACEHOLDERS | values.get("role_templates", {})
    conversation = Conversation(**values)
    _check_together(conversation, where)
    return conversation


def _check_together(c: Conversation, where: str) -> None:
    missing = {"user", "assistant"} - set(c.roles)
    if missing:
        raise MLCError(f"conversation template has no role {' and '.join(sorted(missing))}", where=[where])
    if len(c.seps) not in (1, 2):
        raise MLCError(f"seps has {len(c.seps)} strings; expected 1 or 2", where=[where])
    if "" in c.stop_str:
        raise MLCError("stop_str has an empty string, which ends every answer at once", where=[where])
    for role, text in c.role_templates.items():
        placeholder = PLACEHOLDERS.get(role, f"{{{role}_message}}")
        if placeholder not in text:
            raise MLCError(f"role_templates[{role!r}] is {text!r}; expected {placeholder} in it", where=[where])


def _wrong(what: str, value: object, expected: str, where: str) -> MLCError:
    return MLCError(f"{what} is {json.dumps(value)[:120]}; expected {expected}", where=[where])


def _string(key: str, value: object, where: str) -> str:
    if not isinstance(value, str):
        raise _wrong(key, value, "a string", where)
    return value


def _flag(key: str, value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(key, value, "true or false", where)
    return value


def _strings(key: str, value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise _wrong(key, value, "a list of strings", where)
    return tuple(value)


def _ids(key: str, value: object, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(v) is int and v >= 0 for v in value):
        raise _wrong(key, value, "a list of token ids", where)
    return tuple(value)


def _optional_ids(key: str, value: object, where: str) -> tuple[int, ...] | None:
    return None if value is None else _ids(key, value, where)


def _texts(key: str, value: object, where: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise _wrong(key, value, "an object of strings", where)
    return value


def _messages(key: str, value: object, where: str) -> tuple[tuple[str, str | None], ...]:
    if value != []:
        raise _wrong(key, value, "an empty list (a template carries no history)", where)
    return ()


_CHECKS = {
    "name": _string,
    "system_template": _string,
    "system_message": _string,
    "system_prefix_token_ids": _optional_ids,
    "add_role_after_system_message": _flag,
    "roles": _texts,
    "role_templates": _texts,
    "messages": _messages,
    "seps": _strings,
    "role_content_sep": _string,
    "role_empty_sep": _string,
    "stop_str": _strings,
    "stop_token_ids": _ids,
    "strip_reasoning_in_history": _flag,
    "function_string": _string,
    "use_function_calling": _flag,
}
