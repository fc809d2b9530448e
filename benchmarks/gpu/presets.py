"""The models and schemes of the GPU benchmarks: presets of ``configs/models``, compiled without a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from mlc_compiler.backends import backend_of
from mlc_compiler.ir import dtype as dt
from mlc_compiler.target import Target
from mlc_toolchain.source import PRESETS
from model_zoo import registry
from model_zoo.registry import ExportedModel
from quantization.schemes import get_scheme

MODELS: Sequence[str] = ("smollm2-135m-instruct", "tinyllama-1.1b-chat", "llama-3.1-8b-instruct")
SCHEMES: Sequence[str] = ("q4f16_1", "q8f16_1", "q0f16")
BATCHES: Sequence[int] = (1, 8, 32)
INPUT_EMBEDDINGS = "model.embed_tokens."
PAGE_SIZE = 16  # positions in a page of keys and values


@dataclass(frozen=True)
class Preset:
    """A model to compile. exported: its traced functions, its weights' shapes and its states."""

    exported: ExportedModel
    layers: int
    hidden: int
    tied: bool

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights that a decode step reads: all except the embedding table, unless the head is tied."""
        read = (p for p in self.exported.params if self.tied or not p.name.startswith(INPUT_EMBEDDINGS))
        return sum(prod(p.shape) * dt.nbytes(p.dtype) for p in read)

    @property
    def linear_elements(self) -> int:
        """Elements of the matrices that multiply every token; only for schemes that store one number per element."""
        matrices = (p for p in self.exported.params if len(p.shape) == 2 and p.name.startswith("model.layers."))
        return sum(prod(p.shape) for p in matrices)

    @property
    def cache_bytes(self) -> int:
        """Bytes of keys and values per position."""
        return sum(state.bytes_per_token for state in self.exported.states)


def export_preset(model: str, scheme: str, target: Target, **sizes: int) -> Preset:
    """A preset of ``configs/models``; ``sizes`` replace values of its configuration."""
    values = {**json.loads((PRESETS / f"{model}.json").read_text()), **sizes}
    config = registry.get(values["model_type"]).config.from_hf(values)
    row = get_scheme(scheme)
    exported = registry.export_model(config, row, backend_of(target).activation_dtype(row.model_dtype))
    return Preset(exported, values["num_hidden_layers"], values["hidden_size"], bool(values.get("tie_word_embeddings")))


def decode_sizes(batch: int, context: int) -> dict[str, int]:
    """The symbolic sizes of a decode step of ``batch`` sequences with ``context`` positions each."""
    pages = -(-context // PAGE_SIZE)
    return {"batch_size": batch, "seq_len": batch, "num_seqs": batch, "max_pages": pages, "num_pages": batch * pages}
