"""A GGUF file as a Hugging Face checkpoint: its config, and its tensors under Hugging Face names and layouts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mlc_errors import UnsupportedError
from mlc_toolchain.gguf_architectures import ARCHITECTURES
from mlc_toolchain.gguf_base import GGUFArchitecture
from mlc_toolchain.gguf_experts import MIXTURES
from mlc_toolchain.readers.base import CheckpointError, CheckpointReader, TensorInfo, shown
from mlc_toolchain.readers.gguf import GGUFReader
from mlc_toolchain.rope_factors import ROPE_FACTORS, llama3_scaling
from quantization.kept_codes import Levels

BLOCK_NAME = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
GLOBAL_NAME = re.compile(r"(\w+)\.(weight|bias)")

YARN_KEYS = {
    "factor": "factor",
    "original_context_length": "original_max_position_embeddings",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
}


class GGUFCheckpoint(CheckpointReader):
    """The tensors of a GGUF file under Hugging Face names, with llama.cpp's reordering undone."""

    def __init__(self, path: Path):
        self._reader = GGUFReader(path)
        self.metadata = self._reader.metadata
        self._architecture = self._find_architecture()
        self._names = {self._hf_name(name): name for name in self._reader.names() if name != ROPE_FACTORS}

    def config(self) -> dict[str, Any]:
        """The equivalent config.json, with Hugging Face's keys."""
        arch = self._architecture
        config = {"model_type": arch.model_type, **arch.fixed, "vocab_size": self._vocab_size()}
        config |= {key: self._number(gguf_key) for key, gguf_key in arch.config.items()}
        for key, gguf_keys in arch.optional.items():
            present = [gguf_key for gguf_key in gguf_keys if self._key(gguf_key) in self.metadata]
            if present:
                config[key] = self._number(present[0])
        config["tie_word_embeddings"] = arch.head not in self._reader.names()
        config |= arch.finish(config)
        config |= self._biases() | self._rope_scaling(config) | self._token_ids()
        return config

    def names(self) -> list[str]:
        return list(self._names)

    def info(self, name: str) -> TensorInfo:
        info = self._reader.info(self._names[name])
        if self._stem(name) in self._architecture.transposed and len(info.shape) == 2:
            return TensorInfo(info.shape[::-1], info.dtype, info.nbytes)
        return info

    def read(self, name: str) -> np.ndarray:
        value = self._reader.read(self._names[name])
        stem = self._stem(name)
        if stem in self._architecture.heads:
            return self._rotate_half_order(value, self._heads(stem))
        if stem in self._architecture.grouped:
            return self._by_group(value)
        if stem in self._architecture.one_plus and name.endswith(".weight"):
            return value - 1
        return value.T if stem in self._architecture.transposed else value

    def read_rows(self, name: str) -> Iterator[np.ndarray]:
        stem = self._stem(name)
        arch = self._architecture
        if any(stem in stems for stems in (arch.heads, arch.grouped, arch.transposed, arch.one_plus)):
            yield self.read(name)
        else:
            yield from self._reader.read_rows(self._names[name])

    def group_levels(self, name: str) -> Levels | None:
        stem = self._stem(name)
        found = None if stem in self._architecture.transposed else self._reader.group_levels(self._names[name])
        if found is None or stem not in (*self._architecture.heads, *self._architecture.grouped):
            return found
        order = np.arange(len(found.levels))
        is_grouped = stem in self._architecture.grouped
        rows = self._by_group(order) if is_grouped else self._rotate_half_order(order, self._heads(stem))
        return Levels(found.levels[rows], found.scales[rows], found.group)

    def file_of(self, name: str) -> Path:
        return self._reader.path

    def files(self) -> list[Path]:
        return [self._reader.path]

    def release(self, name: str) -> None:
        self._reader.release(self._names[name])

    def _find_architecture(self) -> GGUFArchitecture:
        name = self.metadata.get("general.architecture")
        has_experts = isinstance(name, str) and self.metadata.get(f"{name}.expert_count", 0)
        known, what = (MIXTURES, " with experts") if has_experts else (ARCHITECTURES, "")
        found = known.get(name) if isinstance(name, str) else None
        if found is None:
            raise self._unsupported(f"GGUF architecture {shown(name)}{what}; expected one of {', '.join(known)}")
        return found

    def _hf_name(self, name: str) -> str:
        arch = self._architecture
        if (block := BLOCK_NAME.fullmatch(name)) and block[2] in arch.names:
            return f"{arch.layer}.{int(block[1])}.{arch.names[block[2]]}.{block[3]}"
        if (whole := GLOBAL_NAME.fullmatch(name)) and whole[1] in arch.names:
            return f"{arch.names[whole[1]]}.{whole[2]}"
        raise self._unsupported(f"tensor {shown(name)} has no place in a {arch.model_type} model")

    def _stem(self, name: str) -> str:
        """attn_q for blk.3.attn_q.weight."""
        return self._names[name].split(".")[-2]

    def _heads(self, stem: str) -> int:
        return self._count(self._architecture.heads[stem])

    def _count(self, key: str) -> int:
        """A number of heads: of keys and values, that of queries where the metadata lacks it."""
        heads = self._number(key if self._key(key) in self.metadata else "attention.head_count")
        if type(heads) is not int:
            raise CheckpointError(f"{self._key(key)} is {heads}; expected an integer", where=[str(self._reader.path)])
        return heads

    def _rotate_half_order(self, rows: np.ndarray, heads: int) -> np.ndarray:
        """Rows from llama.cpp's order (rotary pairs adjacent) to Hugging Face's (first halves, then second halves)."""
        if rows.shape[0] % (2 * heads):
            raise CheckpointError(
                f"{rows.shape[0]} rows do not divide into {heads} heads", where=[str(self._reader.path)]
            )
        return rows.reshape(heads, -1, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)

    def _by_group(self, rows: np.ndarray) -> np.ndarray:
        """Rows of queries, keys and values from one after the other to groups: queries of a key, the key, the value."""
        heads, groups = self._count("attention.head_count"), self._count("attention.head_count_kv")
        if heads % groups or rows.shape[0] % (heads + 2 * groups):
            raise CheckpointError(
                f"{rows.shape[0]} rows do not divide into {heads} queries and {groups} keys and values",
                where=[str(self._reader.path)],
            )
        size = rows.shape[0] // (heads + 2 * groups)
        parts = np.split(rows, [heads * size, (heads + groups) * size])
        return np.concatenate([p.reshape(groups, -1, *rows.shape[1:]) for p in parts], axis=1).reshape(rows.shape)

    def _key(self, key: str) -> str:
        return f"{self.metadata['general.architecture']}.{key}"

    def _number(self, key: str) -> int | float:
        value = self.metadata.get(self._key(key))
        if type(value) is bool or (type(value) is int and 0 < value < 2**31):
            return value
        if type(value) is float and value > 0:
            return float(str(np.float32(value)))  # the shortest decimal, as written in a config.json
        raise CheckpointError(
            f"metadata {self._key(key)} is {shown(value)}; expected one positive number", where=[str(self._reader.path)]
        )

    def _vocab_size(self) -> int:
        if self._architecture.embedding not in self._reader.names():
            raise CheckpointError(f"no tensor {self._architecture.embedding}", where=[str(self._reader.path)])
        return self._reader.info(self._architecture.embedding).shape[0]

    def _biases(self) -> dict[str, bool]:
        names = set(self._names.values())
        return {key: f"blk.0.{stem}.bias" in names for key, stem in self._architecture.biases.items()}

    def _rope_scaling(self, config: Mapping[str, Any]) -> dict[str, Any]:
        kind = self.metadata.get(self._key("rope.scaling.type"), "none")
        if ROPE_FACTORS in self._reader.names():
            factors = self._reader.read(ROPE_FACTORS).astype(np.float32)
            return {"rope_scaling": llama3_scaling(factors, config["rope_theta"], str(self._reader.path))}
        if kind == "none":
            return {}
        if kind == "linear":
            return {"rope_scaling": {"rope_type": "linear", "factor": float(self._number("rope.scaling.factor"))}}
        if kind == "yarn":
            return {"rope_scaling": {**self._architecture.yarn, **self._yarn()}}
        raise self._unsupported(f"rope scaling of type {shown(kind)} in GGUF form is not supported")

    def _yarn(self) -> dict[str, Any]:
        prefix = self._key("rope.scaling.")
        given = {key.removeprefix(prefix) for key in self.metadata if key.startswith(prefix)} - {"type", "finetuned"}
        if given - set(YARN_KEYS):
            raise self._unsupported(f"{prefix}{sorted(given - set(YARN_KEYS))[0]} is not supported")
        return {"rope_type": "yarn", **{YARN_KEYS[key]: self._number(f"rope.scaling.{key}") for key in sorted(given)}}

    def _token_ids(self) -> dict[str, int]:
        ids = {name: self.metadata.get(f"tokenizer.ggml.{name}") for name in ("bos_token_id", "eos_token_id")}
        return {name: value for name, value in ids.items() if type(value) is int}

    def _unsupported(self, message: str) -> UnsupportedError:
        return UnsupportedError(message, where=[str(self._reader.path)])
