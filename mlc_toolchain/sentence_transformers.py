"""Read sentence-transformers' files of a checkpoint: pooling, dense heads, normalization and prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlc_errors import MLCError, UnsupportedError
from mlc_toolchain.readers.base import CheckpointError, shown
from mlc_toolchain.readers.bounded_json import read_json_list, read_json_object
from mlc_toolchain.readers.checkpoint import FORMATS, check_plain
from mlc_toolchain.source_base import ModelSource

MODULES, PROMPTS, TEXTS = "modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"
POOLINGS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_lasttoken": "last"}
NAMED_POOLINGS = {"mean": "mean", "cls": "cls", "lasttoken": "last"}
ACTIVATIONS = {"Identity": "identity", "Tanh": "tanh"}


@dataclass(frozen=True)
class DenseHead:
    """A linear layer after pooling. file: its weight [out_features, in_features] and optional bias."""

    in_features: int
    out_features: int
    bias: bool
    activation: str
    file: Path


@dataclass(frozen=True)
class SentenceModules:
    """The modules after the transformer. pooling: mean, cls or last. prompts: texts to prepend, by name.

    max_seq_length: maximum tokens of a text, None for the model's context.
    """

    pooling: str
    normalize: bool
    heads: tuple[DenseHead, ...] = ()
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    max_seq_length: int | None = None

    def config(self) -> dict[str, Any]:
        """The heads as keys of ``EncoderConfig``. Raises UnsupportedError for heads that differ in more than size."""
        if not self.heads:
            return {}
        first = self.heads[0]
        if any((h.bias, h.activation) != (first.bias, first.activation) for h in self.heads):
            raise UnsupportedError(f"{MODULES}: dense heads that differ in bias or activation are not supported")
        sizes = [head.out_features for head in self.heads]
        return {"dense_sizes": sizes, "dense_bias": first.bias, "dense_activation": first.activation}

    def metadata(self) -> dict[str, Any]:
        """The entries of ``embedding_metadata``."""
        more: dict[str, Any] = {
            "prompts": dict(self.prompts),
            "default_prompt_name": self.default_prompt_name,
            "max_seq_length": self.max_seq_length,
        }
        given = {key: value for key, value in more.items() if value}
        return {"pooling_strategy": self.pooling, "normalize": self.normalize, **given}


def sentence_modules(source: ModelSource) -> SentenceModules | None:
    """Read the modules listed in ``modules.json``; None if there is no such file.

    Raises UnsupportedError for modules and options that are not supported, MLCError for malformed files.
    """
    path = source.file(MODULES)
    if path is None:
        return None
    modules = list(_modules(path))
    kinds = [kind for kind, _ in modules]
    order = ["Transformer", "Pooling", *["Dense"] * kinds.count("Dense"), *["Normalize"] * kinds.count("Normalize")]
    if kinds != order or kinds.count("Normalize") > 1:
        got = ", ".join(kinds)
        raise UnsupportedError(
            f"{MODULES}: got {got[:200]}; expected Transformer, Pooling, any number of Dense, and perhaps Normalize",
            where=[str(path)],
        )
    prompts = _optional(source, PROMPTS)
    return SentenceModules(
        pooling=_pooling(source, modules[1][1]),
        normalize="Normalize" in kinds,
        heads=tuple(_head(source, folder) for kind, folder in modules if kind == "Dense"),
        prompts=_prompts(prompts.get("prompts") or {}),
        default_prompt_name=prompts.get("default_prompt_name"),
        max_seq_length=_max_length(source, modules[0][1]),
    )


def with_heads(config: Mapping[str, Any], modules: SentenceModules | None) -> dict[str, Any]:
    """A model's config, with the keys of its dense heads if it has any."""
    return {**config, **modules.config()} if modules else dict(config)


def _modules(path: Path) -> Iterator[tuple[str, str]]:
    """The kind and folder of each module; the transformer's folder is empty if it is the checkpoint's own."""
    for entry in read_json_list(path):
        kind, folder = (entry.get(key) if isinstance(entry, dict) else None for key in ("type", "path"))
        if not isinstance(kind, str) or not isinstance(folder, str):
            raise CheckpointError(f"{MODULES} has the module {shown(entry)}; expected type and path", where=[str(path)])
        if folder:
            check_plain(folder, path)
        yield kind.rsplit(".", 1)[-1], folder


def _pooling(source: ModelSource, folder: str) -> str:
    path = _required(source, f"{folder}/config.json")
    config = read_json_object(path)
    named = config.get("pooling_mode")
    chosen = [named] if isinstance(named, str) else [k for k, on in config.items() if k.startswith("pooling_") and on]
    known = NAMED_POOLINGS if isinstance(named, str) else POOLINGS
    if len(chosen) != 1 or chosen[0] not in known:
        raise UnsupportedError(
            f"pooling: got {', '.join(map(str, chosen))[:200] or 'none'}; expected one of {', '.join(known)}",
            where=[str(path)],
        )
    if config.get("include_prompt", True) is False:
        raise UnsupportedError("pooling: include_prompt is false, which is not supported", where=[str(path)])
    return known[chosen[0]]


def _head(source: ModelSource, folder: str) -> DenseHead:
    path = _required(source, f"{folder}/config.json")
    config = read_json_object(path)
    given, made = config.get("in_features"), config.get("out_features")
    activation = str(config.get("activation_function", "Tanh")).rsplit(".", 1)[-1]
    if not (isinstance(given, int) and isinstance(made, int) and given > 0 and made > 0):
        raise CheckpointError("a dense head has no in_features and out_features", where=[str(path)])
    if activation not in ACTIVATIONS:
        raise UnsupportedError(
            f"activation_function: got {activation[:80]}; expected one of {', '.join(ACTIVATIONS)}", where=[str(path)]
        )
    names = [f"{folder}/{single}" for _, single, _ in FORMATS.values()]
    file = next(filter(None, map(source.file, names)), None)
    if file is None:
        raise CheckpointError(f"a dense head has no weights: looked for {', '.join(names)}", where=[str(path)])
    return DenseHead(given, made, bool(config.get("bias", True)), ACTIVATIONS[activation], file)


def _prompts(prompts: object) -> dict[str, str]:
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise CheckpointError(f"{PROMPTS}: prompts is {shown(prompts)}; expected texts by name")
    return prompts


def _max_length(source: ModelSource, folder: str) -> int | None:
    config = _optional(source, f"{folder}/{TEXTS}" if folder else TEXTS)
    if config.get("do_lower_case"):
        raise UnsupportedError(f"{TEXTS}: do_lower_case is true, which is not supported")
    length = config.get("max_seq_length")
    if length is not None and (type(length) is not int or length < 1):
        raise MLCError(f"{TEXTS}: max_seq_length is {shown(length)}; expected a positive integer")
    return length


def _optional(source: ModelSource, name: str) -> dict[str, Any]:
    path = source.file(name)
    return {} if path is None else read_json_object(path)


def _required(source: ModelSource, name: str) -> Path:
    path = source.file(name)
    if path is None:
        raise CheckpointError(f"{MODULES} names a module without {name}")
    return path
