"""Read the metadata of a GGUF file under its architecture's prefix, and derive the config from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from mlc_errors import UnsupportedError
from mlc_toolchain.gguf_base import GGUFArchitecture
from mlc_toolchain.readers.base import CheckpointError, shown

PREDICTING_LAYERS = "nextn_predict_layers"
MAY_BE_ZERO = frozenset(
    {"leading_dense_block_count", "expert_shared_count", "pooling_type", PREDICTING_LAYERS}
    | {"decoder_start_token_id", "altup.active_idx", "attention.shared_kv_layers"}
)
REAL = frozenset({"activation_sparsity_scale", "swiglu_clamp_exp", "swiglu_clamp_shexp"})
NAMES = frozenset({"hidden_activation"})
MULTIPLIER = "yarn_log_multiplier"
YARN_KEYS = {
    "factor": "factor",
    "original_context_length": "original_max_position_embeddings",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
}


class GGUFMetadata:
    """Typed lookups by keys without the architecture's prefix; errors name the key and the file, ``where``.

    tensors: the names of the file's tensors.
    """

    def __init__(self, values: Mapping[str, Any], tensors: Collection[str], where: str):
        self.values = values
        self.tensors = frozenset(tensors)
        self.where = where

    def key(self, key: str) -> str:
        return f"{self.values.get('general.architecture')}.{key}"

    def has(self, key: str) -> bool:
        return self.key(key) in self.values

    def value(self, key: str) -> int | float | str:
        """A string, or a number as by ``number``."""
        value = self.values.get(self.key(key))
        return value if key in NAMES and isinstance(value, str) else self.number(key)

    def number(self, key: str) -> int | float:
        """A number or boolean; float32 values as the shortest decimal, as in a config.json."""
        value, least = self.values.get(self.key(key)), 0 if key in MAY_BE_ZERO else 1
        if type(value) is bool or (type(value) is int and least <= value < 2**31):
            return value
        if type(value) is float and value > 0:
            return _decimal(value)
        raise CheckpointError(
            f"metadata {self.key(key)} is {shown(value)}; expected one positive number", where=[self.where]
        )

    def numbers(self, key: str, layers: int) -> list[Any]:
        """One number per layer; a single number applies to all layers. Integers, except floats for ``REAL`` keys."""
        value = self.values.get(self.key(key))
        listed = (value if isinstance(value, list) else [value] * layers)[:layers]
        found: list[int | float] = [int(v) for v in listed if isinstance(v, int) and 0 <= v < 2**31]
        if key in REAL:
            found = [_decimal(v) for v in listed if isinstance(v, float)]
        if len(found) < layers:
            raise CheckpointError(
                f"metadata {self.key(key)} is {shown(value)}; expected {layers} numbers", where=[self.where]
            )
        return found

    def count(self, key: str) -> int:
        """A number of heads, from the layers that have any; key/value heads default to the number of query heads."""
        known = key if self.has(key) else "attention.head_count"
        value = self.values.get(self.key(known))
        heads = max(self.numbers(known, len(value)), default=0) if isinstance(value, list) else self.number(known)
        if type(heads) is not int or not heads:
            raise CheckpointError(f"{self.key(key)} is {heads}; expected an integer", where=[self.where])
        return heads

    def layers(self) -> int:
        """The number of layers without multi-token prediction (MTP) layers."""
        blocks = self.number("block_count")
        predicting = self.number(PREDICTING_LAYERS) if self.has(PREDICTING_LAYERS) else 0
        if blocks > len(self.tensors):
            message = f"metadata {self.key('block_count')} is {blocks}; the file has {len(self.tensors)} tensors"
            raise CheckpointError(message, where=[self.where])
        return int(blocks - predicting)

    def config(self, arch: GGUFArchitecture) -> dict[str, Any]:
        """The config entries that follow from metadata and from the names of the file's tensors."""
        tensors = self.tensors
        config: dict[str, Any] = {key: self.number(gguf_key) for key, gguf_key in arch.config.items()}
        for key, gguf_key in arch.config.items():
            if gguf_key == "block_count":
                config[key] = self.layers()
        for key, gguf_keys in arch.optional.items():
            present = [gguf_key for gguf_key in gguf_keys if self.has(gguf_key)]
            if present and key not in arch.lists:
                config[key] = self.value(present[0])
        held = {key: [f"blk.{i}.{name}" in tensors for i in range(self.layers())] for key, name in arch.having.items()}
        listed = {key: self.numbers(gguf_key, self.layers()) for key, gguf_key in arch.lists.items()}
        suffixes = {name.partition(".")[2].partition(".")[2] for name in tensors if name.startswith("blk.")}
        return {**config, **listed, **held, **{key: name in suffixes for key, name in arch.present.items()}}

    def rope_scaling(self, arch: GGUFArchitecture) -> dict[str, Any]:
        """The entry rope_scaling, if any."""
        kind = self.values.get(self.key("rope.scaling.type"), "none")
        if kind == "none":
            return {}
        if kind == "linear":
            return {"rope_scaling": {"rope_type": "linear", "factor": float(self.number("rope.scaling.factor"))}}
        if kind == "yarn":
            return {"rope_scaling": {**arch.yarn, **self._yarn(arch)}}
        raise self.unsupported(f"rope scaling of type {shown(kind)} in GGUF form is not supported")

    def token_ids(self) -> dict[str, int]:
        """The BOS and EOS ids that the file has."""
        ids = {name: self.values.get(f"tokenizer.ggml.{name}") for name in ("bos_token_id", "eos_token_id")}
        return {name: value for name, value in ids.items() if type(value) is int}

    def unsupported(self, message: str) -> UnsupportedError:
        return UnsupportedError(message, where=[self.where])

    def _yarn(self, arch: GGUFArchitecture) -> dict[str, Any]:
        prefix = self.key("rope.scaling.")
        given = {key.removeprefix(prefix) for key in self.values if key.startswith(prefix)} - {"type", "finetuned"}
        scales = {}
        if arch.magnitude and MULTIPLIER in given:
            given.remove(MULTIPLIER)
            scale = round(self.number(f"rope.scaling.{MULTIPLIER}") / arch.magnitude, 6)
            scales = {"mscale": scale, "mscale_all_dim": scale}
        if given - set(YARN_KEYS):
            raise self.unsupported(f"{prefix}{sorted(given - set(YARN_KEYS))[0]} is not supported")
        numbers = {YARN_KEYS[key]: self.number(f"rope.scaling.{key}") for key in sorted(given)}
        return {"rope_type": "yarn", **numbers, **scales}


def _decimal(value: float) -> float:
    """The shortest decimal that rounds to the float32 value, as in a config.json."""
    return float(str(np.float32(value)))
