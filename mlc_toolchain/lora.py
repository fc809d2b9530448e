"""Merge a PEFT LoRA adapter into a checkpoint: each tensor W is read as W + scale * B A, computed in float32."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from mlc_errors import MLCError, UnsupportedError
from mlc_toolchain.readers.base import CheckpointReader, TensorInfo, shown
from mlc_toolchain.readers.bounded_json import read_json_object
from mlc_toolchain.readers.safetensors import SafetensorsReader
from mlc_toolchain.readers.torch_bin import TorchReader
from quantization.kept_codes import Levels, StoredForm

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
OLDER_WEIGHTS = "adapter_model.bin"
PREFIX = "base_model.model."
PAIRS = {"lora_A.weight": "lora_B.weight", "lora_embedding_A": "lora_embedding_B"}
# Keys of the config that would change the arithmetic, with their neutral values.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "use_dora": (None, False),
    "layer_replication": (None,),
    "rank_pattern": (None, {}),
    "alpha_pattern": (None, {}),
    "lora_bias": (None, False),
    "eva_config": (None,),
    "alora_invocation_tokens": (None,),
    "target_parameters": (None, []),
}


@dataclass(frozen=True)
class Delta:
    """The update of a tensor: scale * second @ first, transposed for weights that are stored [in, out]."""

    first: str
    second: str
    transposed: bool


class LoraCheckpoint(CheckpointReader):
    """A checkpoint with a merged adapter. Merged tensors are read as float32."""

    def __init__(self, base: CheckpointReader, folder: Path):
        self._base = base
        self._folder = folder
        config = read_json_object(folder / CONFIG)
        self._scale = _scale(config, folder)
        self._adapter = _open_adapter(folder)
        self._deltas, self._replaced = self._assign(bool(config.get("fan_in_fan_out")))
        for name, delta in self._deltas.items():
            self._check_delta(name, delta)
        for name, source in self._replaced.items():
            self._check_shape(name, source, self._adapter.info(source).shape)

    def names(self) -> list[str]:
        return self._base.names()

    def info(self, name: str) -> TensorInfo:
        info = self._base.info(name)
        if name in self._replaced:
            return self._adapter.info(self._replaced[name])
        return TensorInfo(info.shape, "float32", info.nbytes) if name in self._deltas else info

    def read(self, name: str) -> np.ndarray:
        if name in self._replaced:
            return self._adapter.read(self._replaced[name])
        value = self._base.read(name)
        if name not in self._deltas:
            return value
        return value.astype(np.float32) + self._scale * self._delta(self._deltas[name])

    def file_of(self, name: str) -> Path:
        return self._base.file_of(name)

    def files(self) -> list[Path]:
        return [*self._base.files(), *self._adapter.files(), self._folder / CONFIG]

    def release(self, name: str) -> None:
        self._base.release(name)

    def group_levels(self, name: str) -> Levels | None:
        changed = name in self._deltas or name in self._replaced
        return None if changed else self._base.group_levels(name)

    def stored_form(self, name: str) -> StoredForm | None:
        changed = name in self._deltas or name in self._replaced
        return None if changed else self._base.stored_form(name)

    def _delta(self, delta: Delta) -> np.ndarray:
        first, second = (self._adapter.read(name).astype(np.float32) for name in (delta.first, delta.second))
        product = second @ first
        return product.T if delta.transposed else product

    def _assign(self, fan_in_fan_out: bool) -> tuple[dict[str, Delta], dict[str, str]]:
        """Match the adapter's tensors with the checkpoint's tensors that they change."""
        deltas: dict[str, Delta] = {}
        replaced: dict[str, str] = {}
        names = set(self._adapter.names())
        for name in sorted(names):
            kind = next((kind for pair in PAIRS.items() for kind in pair if name.endswith(f".{kind}")), None)
            if kind is None:
                replaced[self._target(name)] = name
            elif kind in PAIRS:
                stem = name.removesuffix(kind)
                if stem + PAIRS[kind] not in names:
                    raise self._error(f"the adapter has {shown(name)} without its {PAIRS[kind]}")
                transposed = fan_in_fan_out or kind == "lora_embedding_A"
                deltas[self._target(f"{stem}weight")] = Delta(name, stem + PAIRS[kind], transposed)
            elif not any(name.removesuffix(kind) + first in names for first in PAIRS):
                raise self._error(f"the adapter has {shown(name)} without its other half")
        return deltas, replaced

    def _target(self, name: str) -> str:
        """The checkpoint's name of an adapter's tensor; checkpoints may omit a leading component such as "model."."""
        plain = name.removeprefix(PREFIX).replace(".modules_to_save.", ".").replace(".base_layer.", ".")
        names = self._base.names()
        if plain in names:
            return plain
        ends = [n for n in names if n.endswith(f".{plain}") or plain.endswith(f".{n}")]
        if len(ends) == 1:
            return ends[0]
        near = get_close_matches(plain, names, n=2, cutoff=0.8)
        hint = f"near: {', '.join(near)}" if near else "the adapter was made for another model"
        raise self._error(f"the adapter changes {shown(plain)}, which the checkpoint lacks", hint)

    def _check_delta(self, name: str, delta: Delta) -> None:
        first, second = self._adapter.info(delta.first).shape, self._adapter.info(delta.second).shape
        if len(first) != 2 or len(second) != 2 or first[0] != second[1]:
            raise self._error(f"{shown(delta.first)} {list(first)} and {shown(delta.second)} {list(second)} do not fit")
        shape = (second[0], first[1])
        self._check_shape(name, delta.first, shape[::-1] if delta.transposed else shape)

    def _check_shape(self, name: str, source: str, shape: tuple[int, ...]) -> None:
        expected = self._base.info(name).shape
        if shape != expected:
            raise self._error(f"{shown(source)} gives {list(shape)}; {name} of the checkpoint has {list(expected)}")

    def _error(self, message: str, hint: str | None = None) -> MLCError:
        return MLCError(message, where=[str(self._folder / WEIGHTS)], hint=hint)


def _open_adapter(folder: Path) -> CheckpointReader:
    if (folder / OLDER_WEIGHTS).is_file() and not (folder / WEIGHTS).is_file():
        return TorchReader(folder / OLDER_WEIGHTS)
    return SafetensorsReader(folder / WEIGHTS)


def _scale(config: Mapping[str, Any], folder: Path) -> np.float32:
    """lora_alpha / r, or lora_alpha / sqrt(r) with use_rslora. Raises UnsupportedError for variants of LoRA."""
    where = [str(folder / CONFIG)]
    if config.get("peft_type") != "LORA":
        raise UnsupportedError(f"peft_type: got {shown(config.get('peft_type'))}; expected 'LORA'", where=where)
    for key, neutral in NEUTRAL.items():
        if config.get(key) not in neutral:
            raise UnsupportedError(f"{key}: got {shown(config[key])}; expected {neutral[-1]!r}", where=where)
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if type(rank) is not int or rank < 1 or isinstance(alpha, bool) or not isinstance(alpha, (int, float)):
        raise MLCError(f"got r {shown(rank)} and lora_alpha {shown(alpha)}; expected positive numbers", where=where)
    return np.float32(alpha / (rank**0.5 if config.get("use_rslora") else rank))
