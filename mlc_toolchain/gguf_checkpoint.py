"""A GGUF file as a Hugging Face checkpoint: its config, and its tensors under Hugging Face names and layouts."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mlc_toolchain.gguf_architectures import ARCHITECTURES
from mlc_toolchain.gguf_base import GGUFArchitecture
from mlc_toolchain.gguf_experts import MIXTURES
from mlc_toolchain.gguf_metadata import GGUFMetadata
from mlc_toolchain.readers.base import CheckpointError, CheckpointReader, TensorInfo, shown
from mlc_toolchain.readers.gguf import GGUFReader
from mlc_toolchain.rope_factors import LONG_FACTORS, ROPE_FACTORS, SHORT_FACTORS, llama3_scaling, longrope_scaling
from model_zoo.weight_expr import CheckpointTensor, Expr, Reshape, Slice
from quantization.kept_codes import Levels

LOG = logging.getLogger(__name__)
ORIGINAL_CONTEXT = "rope.scaling.original_context_length"
TENSOR_NAME = re.compile(r"(?:(\w+\.)?blk\.(\d+)\.)?(\w[\w.]*?)(?:\.(weight|bias))?")


class GGUFCheckpoint(CheckpointReader):
    """The tensors of a GGUF file under Hugging Face names, with llama.cpp's reordering undone.

    Multi-token prediction (MTP) layers are omitted.
    """

    def __init__(self, path: Path):
        self._reader = GGUFReader(path)
        self.metadata = self._reader.metadata
        self._values = GGUFMetadata(self.metadata, self._reader.names(), str(path))
        self._architecture = self._find_architecture()
        self._derived = self._find_derived()
        self._names = self._find_names()
        self._warn_of_missing()

    def config(self) -> dict[str, Any]:
        """The equivalent config.json, with Hugging Face's keys."""
        config = self._sizes()
        return config | self._rope_scaling(config) | self._values.token_ids()

    def block_types(self) -> dict[str, int]:
        """See ``GGUFReader.block_types``."""
        return self._reader.block_types()

    def names(self) -> list[str]:
        return [*self._names, *self._derived]

    def info(self, name: str) -> TensorInfo:
        if name in self._derived:
            return self._derived_info(name)
        info, stem = self._reader.info(self._names[name]), self._stem(name)
        if stem in self._architecture.transposed and len(info.shape) > 1:
            return TensorInfo((*info.shape[:-2], info.shape[-1], info.shape[-2]), info.dtype, info.nbytes)
        return TensorInfo((info.elements,), info.dtype, info.nbytes) if stem in self._architecture.flat else info

    def read(self, name: str) -> np.ndarray:
        if name in self._derived:
            return self._derived[name].evaluate(self._reader.read).astype(self.info(name).dtype, copy=False)
        value, stem, arch = self._reader.read(self._names[name]), self._stem(name), self._architecture
        if stem in arch.heads:
            return self._rotate_half_order(value, self._values.count(arch.heads[stem]))
        if stem in arch.grouped:
            return self._by_group(value)
        if stem in arch.one_plus and name.endswith(".weight"):
            return value - 1
        if stem in arch.flat:
            return value.reshape(-1)
        return np.swapaxes(value, -1, -2) if stem in arch.transposed and value.ndim > 1 else value

    def read_rows(self, name: str) -> Iterator[np.ndarray]:
        if name in self._derived or self._is_changed(self._stem(name)):
            yield self.read(name)
        else:
            yield from self._reader.read_rows(self._names[name])

    def group_levels(self, name: str) -> Levels | None:
        if name in self._derived:
            return None
        stem, arch = self._stem(name), self._architecture
        found = None if stem in arch.transposed else self._reader.group_levels(self._names[name])
        if found is None or stem not in (*arch.heads, *arch.grouped):
            return found
        order = np.arange(len(found.levels))
        is_grouped = stem in arch.grouped
        rows = (
            self._by_group(order)
            if is_grouped
            else self._rotate_half_order(order, self._values.count(arch.heads[stem]))
        )
        return Levels(found.levels[rows], found.scales[rows], found.group)

    def file_of(self, name: str) -> Path:
        return self._reader.path

    def files(self) -> list[Path]:
        return [self._reader.path]

    def release(self, name: str) -> None:
        for source in self._derived[name].sources() if name in self._derived else [self._names[name]]:
            self._reader.release(source)

    def _find_architecture(self) -> GGUFArchitecture:
        name = self.metadata.get("general.architecture")
        has_experts = isinstance(name, str) and self.metadata.get(f"{name}.expert_count", 0)
        known, what = (MIXTURES, " with experts") if has_experts else (ARCHITECTURES, "")
        found = known.get(name) if isinstance(name, str) else None
        if found is None:
            raise self._values.unsupported(f"GGUF architecture {shown(name)}{what}; expected one of {', '.join(known)}")
        return next((other for tensor, other in found.instead.items() if tensor in self._reader.names()), found)

    def _warn_of_missing(self) -> None:
        for tensor in set(self._architecture.expected) - set(self._reader.names()):
            LOG.warning("%s has no tensor %s: %s", self._reader.path, tensor, self._architecture.expected[tensor])

    def _sizes(self) -> dict[str, Any]:
        """The config without entries for positions and tokens."""
        arch, names = self._architecture, self._reader.names()
        config = {"model_type": arch.model_type, **arch.fixed, "vocab_size": self._rows(arch.embedding)}
        config |= {key: self._rows(name) for key, name in arch.rows.items() if name in names}
        config |= self._values.config(arch)
        config["tie_word_embeddings"] = arch.head not in names
        return config | arch.finish(config)

    def _find_derived(self) -> dict[str, Expr]:
        """Tensors that are computed from others: Hugging Face name -> expression of the file's tensors."""
        arch, config, held = self._architecture, self._sizes(), set(self._reader.names())
        found: dict[str, Expr] = {}
        for name in held.intersection(arch.stacked):
            count, *shape = self._reader.info(name).shape
            for i in range(count):
                part = Slice((CheckpointTensor(name),), 0, i, i + 1)
                found[arch.stacked[name].format(i)] = Reshape((part,), tuple(shape))
        for layer in range(self._values.layers()):
            for name, value in arch.derived(config, layer).items():
                located = value.map_names(f"blk.{layer}.{{}}".format)
                if held.issuperset(located.sources()):
                    found[f"{arch.layer}.{layer}.{name}"] = located
        return found

    def _find_names(self) -> dict[str, str]:
        """Tensors that are stored individually: Hugging Face name -> name in the file."""
        used = {source for value in self._derived.values() for source in value.sources()}
        used |= {ROPE_FACTORS, LONG_FACTORS, SHORT_FACTORS, *self._architecture.unused}
        layers, found = self._values.layers(), {}
        for name in self._reader.names():
            parts = TENSOR_NAME.fullmatch(name)
            predicts = parts and parts[2] and not parts[1] and int(parts[2]) >= layers
            if name not in used and not predicts:
                found[self._hf_name(name, parts)] = name
        return found

    def _hf_name(self, name: str, parts: re.Match[str] | None) -> str:
        arch = self._architecture
        part, layer, stem, kind = parts.groups("") if parts else ("", "", "", "")
        stem = part + stem
        known = arch.names.get(f"{stem}.{kind}") or (
            stem in arch.names and ".".join(filter(None, (arch.names[stem], kind)))
        )
        if not known or (layer and part not in arch.layer_prefixes):
            raise self._values.unsupported(f"tensor {shown(name)} has no place in a {arch.model_type} model")
        return f"{arch.layer_prefixes[part]}.{int(layer)}.{known}" if layer else known

    def _derived_info(self, name: str) -> TensorInfo:
        value = self._derived[name]
        infos = {source: self._reader.info(source) for source in value.sources()}
        dtypes = {info.dtype for info in infos.values()}
        shape = value.shape({source: info.shape for source, info in infos.items()})
        return TensorInfo(shape, dtypes.pop() if len(dtypes) == 1 else "float32", sum(i.nbytes for i in infos.values()))

    def _stem(self, name: str) -> str:
        """The stem of a tensor name, for example attn_q for blk.3.attn_q.weight."""
        parts = TENSOR_NAME.fullmatch(self._names[name])
        return (parts[1] or "") + parts[3] if parts else ""

    def _is_changed(self, stem: str) -> bool:
        arch = self._architecture
        return any(stem in stems for stems in (arch.heads, arch.grouped, arch.transposed, arch.flat, arch.one_plus))

    def _rotate_half_order(self, rows: np.ndarray, heads: int) -> np.ndarray:
        """Reorder rows from llama.cpp's order (rotary pairs adjacent) to Hugging Face's (first halves, then second)."""
        if rows.shape[0] % (2 * heads):
            raise CheckpointError(
                f"{rows.shape[0]} rows do not divide into {heads} heads", where=[str(self._reader.path)]
            )
        return rows.reshape(heads, -1, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)

    def _by_group(self, rows: np.ndarray) -> np.ndarray:
        """Reorder concatenated query, key and value rows to groups: the queries of a key, the key, the value."""
        heads, groups = self._values.count("attention.head_count"), self._values.count("attention.head_count_kv")
        if heads % groups or rows.shape[0] % (heads + 2 * groups):
            raise CheckpointError(
                f"{rows.shape[0]} rows do not divide into {heads} queries and {groups} keys and values",
                where=[str(self._reader.path)],
            )
        size = rows.shape[0] // (heads + 2 * groups)
        parts = np.split(rows, [heads * size, (heads + groups) * size])
        return np.concatenate([p.reshape(groups, -1, *rows.shape[1:]) for p in parts], axis=1).reshape(rows.shape)

    def _rows(self, name: str) -> int:
        if name not in self._reader.names():
            raise CheckpointError(f"no tensor {name}", where=[str(self._reader.path)])
        return self._reader.info(name).shape[0]

    def _rope_scaling(self, config: dict[str, Any]) -> dict[str, Any]:
        names, read = set(self._reader.names()), self._reader.read
        if names.issuperset((LONG_FACTORS, SHORT_FACTORS)):
            original = ORIGINAL_CONTEXT if self._values.has(ORIGINAL_CONTEXT) else "context_length"
            context = int(self._values.number(original))
            scaling = longrope_scaling(read(LONG_FACTORS), read(SHORT_FACTORS), context)
            return {"rope_scaling": {**scaling, **self._architecture.longrope}}
        if ROPE_FACTORS not in names:
            return self._values.rope_scaling(self._architecture)
        factors = read(ROPE_FACTORS).astype(np.float32)
        return {"rope_scaling": llama3_scaling(factors, config["rope_theta"], str(self._reader.path))}
