"""The part of JSON Schema that mlc_cli/schemas uses; stricter, as an object has no field that is not listed."""

from __future__ import annotations

from typing import Any

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}
SAYS_NOTHING = {"$schema", "$id", "title", "description"}
KEYWORDS = {"type", "const", "enum", "properties", "required", "additionalProperties", "items", "anyOf", "not"}


def problems(value: Any, schema: dict[str, Any], place: str = "$") -> list[str]:
    """What of a value does not fit a schema, each with its place. Raises ValueError for keywords that are not known."""
    if unknown := schema.keys() - SAYS_NOTHING - KEYWORDS:
        raise ValueError(f"{place}: {unknown}")
    found = []
    if "type" in schema and not _has_type(value, schema["type"]):
        return [f"{place}: got {value!r}; expected {schema['type']}"]
    if "const" in schema and value != schema["const"]:
        found.append(f"{place}: got {value!r}; expected {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{place}: got {value!r}; expected one of {schema['enum']}")
    if "not" in schema and not problems(value, schema["not"], place):
        found.append(f"{place}: {value!r} is excluded")
    if "anyOf" in schema:
        choices = [problems(value, choice, place) for choice in schema["anyOf"]]
        found += min(choices, key=len)
    if isinstance(value, dict) and ("properties" in schema or "additionalProperties" in schema):
        found += _of_object(value, schema, place)
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            found += problems(item, schema["items"], f"{place}[{number}]")
    return found


def _of_object(value: dict[str, Any], schema: dict[str, Any], place: str) -> list[str]:
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    found = [f"{place}: no {name}" for name in schema.get("required", ()) if name not in value]
    for name, item in value.items():
        if name in known:
            found += problems(item, known[name], f"{place}.{name}")
        elif others is not None:
            found += problems(item, others, f"{place}.{name}")
        else:
            found.append(f"{place}: {name} is not in the schema")
    return found


def _has_type(value: Any, expected: str | list[str]) -> bool:
    names = [expected] if isinstance(expected, str) else expected
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, TYPES[name]) for name in names)
