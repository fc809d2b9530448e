"""Writes the files of sentence-transformers into a checkpoint's folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

TYPE = "sentence_transformers.models."
POOLING_KEYS = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")


def write_modules(
    folder: Path,
    pooling: str = "mean_tokens",
    heads: Sequence[Mapping[str, np.ndarray]] = (),
    *,
    kinds: Sequence[str] | None = None,
    activation: str = "torch.nn.modules.linear.Identity",
    prompts: Mapping[str, Any] | None = None,
    max_seq_length: int | None = None,
    do_lower_case: bool = False,
    **more: Any,
) -> None:
    """heads: ``linear.weight`` and perhaps ``linear.bias`` of each dense module; more: keys of the pooling's config."""
    kinds = kinds or ["Transformer", "Pooling", *["Dense"] * len(heads), "Normalize"]
    paths = ["" if kind == "Transformer" else f"{i}_{kind}" for i, kind in enumerate(kinds)]
    modules = [{"idx": i, "name": str(i), "path": paths[i], "type": TYPE + kind} for i, kind in enumerate(kinds)]
    _write(folder / "modules.json", modules)
    _write(folder / "1_Pooling" / "config.json", {**{f"pooling_mode_{k}": k == pooling for k in POOLING_KEYS}, **more})
    for i, head in enumerate(heads, start=2):
        out, given = head["linear.weight"].shape
        sizes = {"in_features": given, "out_features": out, "bias": "linear.bias" in head}
        _write(folder / f"{i}_Dense" / "config.json", {**sizes, "activation_function": activation})
        save_file(dict(head), folder / f"{i}_Dense" / "model.safetensors")
    if prompts is not None:
        _write(folder / "config_sentence_transformers.json", prompts)
    if max_seq_length is not None:
        _write(folder / "sentence_bert_config.json", {"max_seq_length": max_seq_length, "do_lower_case": do_lower_case})


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
