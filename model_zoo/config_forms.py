"""Normalization of config.json entries whose form differs between versions of transformers."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from mlc_errors import MLCError, UnsupportedError
from model_zoo.config_keys import LAYER_TYPES


def text_part(raw: Mapping[str, Any], other_keys: Container[str]) -> Mapping[str, Any]:
    """The entries of the text model in the config of a model that also takes images or sound.

    other_keys: keys of the other parts. Returns ``raw`` itself if it has no ``text_config``.
    """
    text = raw.get("text_config")
    if text is None:
        return raw
    if not isinstance(text, Mapping):
        raise MLCError("text_config: expected an object", where=["config.json"])
    return {**{k: v for k, v in raw.items() if k not in other_keys and k != "text_config"}, **text}


def with_rope_keys(raw: Mapping[str, Any], has_local: bool) -> dict[str, Any]:
    """Move the entries of transformers 5's ``rope_parameters`` to the keys of transformers 4.
    A ``rope_scaling`` with the key ``rope_theta`` is read in the same way.

    has_local: the parameters may differ between layers with a window and those without.
    """
    values = dict(raw)
    rope, older = (raw.get(key) for key in ("rope_parameters", "rope_scaling"))
    if rope is None and isinstance(older, Mapping) and "rope_theta" in older:
        rope = older
    if isinstance(rope, Mapping) and has_local and set(rope) <= set(LAYER_TYPES):
        rope, local = (rope.get(kind) or {} for kind in LAYER_TYPES)
        if not isinstance(local, Mapping):
            raise MLCError("rope_parameters: expected an object for each kind of layer", where=["config.json"])
        keys = {"rope_theta": "rope_local_base_freq", "partial_rotary_factor": "local_partial_rotary_factor"}
        values |= {ours: local[theirs] for theirs, ours in keys.items() if theirs in local}
        values["rope_local_scaling"] = None if _is_default(local) else local
    if rope is not None:
        if not isinstance(rope, Mapping) or any(isinstance(v, Mapping) for v in rope.values()):
            raise UnsupportedError(
                "rope_parameters: rotary positions differ from layer to layer", where=["config.json"]
            )
        values["rope_scaling"] = {k: v for k, v in rope.items() if k not in ("rope_theta", "partial_rotary_factor")}
        values |= {key: rope[key] for key in ("rope_theta", "partial_rotary_factor") if key in rope}
    scaling = values.get("rope_scaling")
    if isinstance(scaling, Mapping) and _is_default(scaling):
        values["rope_scaling"] = None
    return values


def _is_default(scaling: Mapping[str, Any]) -> bool:
    return (scaling.get("rope_type") or scaling.get("type") or "default") == "default"


def without_window(values: dict[str, Any], has_switch: bool) -> dict[str, Any]:
    """Set ``sliding_window`` to 0 if the config disables it, so that the model's default does not apply.

    has_switch: a window acts only with ``use_sliding_window``, or with ``layer_types`` in a model_config of ours.
    An ``attention_sink_size`` of -1 means none and is set to None.
    """
    if values.get("attention_sink_size") == -1:
        values = {**values, "attention_sink_size": None}
    windows = [values[key] for key in ("sliding_window", "sliding_window_size") if key in values]
    is_off = has_switch and not values.get("layer_types") and not values.get("use_sliding_window")
    unused = is_off or values.get("use_sliding_window") is False or (windows and windows[0] in (None, -1, 0))
    rest = {k: v for k, v in values.items() if k not in ("sliding_window", "sliding_window_size")}
    return {**rest, "sliding_window": 0} if unused else values
