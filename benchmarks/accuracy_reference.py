"""The float32 reference model in transformers on a held-out text, and the divergence of models with other weights."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from accuracy_texts import held_out_text
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from mlc_evaluation.perplexity import Divergence, divergence_of

PART = 512  # tokens per part, each read with an empty cache


@dataclass(frozen=True)
class Weights:
    """Dequantized weights of a quantized model by Hugging Face name, and the size of its file in bytes."""

    tensors: Mapping[str, np.ndarray]
    nbytes: int


@dataclass(frozen=True)
class Accuracy:
    """Accuracy of one quantization scheme. bits: average bits per weight over the whole file. divergence: from the
    float32 model, with a standard error over parts.

    part_divergences: the means of parts of PART tokens, for comparing rows on the same text.
    """

    name: str
    bits: float
    megabytes: float
    positions: int
    divergence: Divergence
    perplexity: float
    part_divergences: list[float]


class Reference:
    """The float32 model and the text, ids [parts, PART].

    Its log-probabilities, float32 [parts, PART, V], are cached in a file below ``scratch``, one per text, because the
    text depends on the installed packages. In float16, the divergence of a position would be off by 1e-4.
    """

    def __init__(self, folder: Path, positions: int, scratch: Path):
        self.folder = folder
        text = held_out_text()
        self.text_sha256 = hashlib.sha256(text.encode()).hexdigest()
        ids = AutoTokenizer.from_pretrained(folder)(text)["input_ids"]
        parts = positions // PART
        stride = (len(ids) - PART) // max(1, parts - 1)  # evenly over the text
        self.ids = torch.tensor([ids[i * stride : i * stride + PART] for i in range(parts)])
        model = load(folder)
        self.parameters = sum(p.numel() for p in model.parameters())
        path = scratch / f"{folder.name}-{self.text_sha256[:16]}-{parts}-float32.npy"
        if not path.is_file():
            self._record(model, path)
        self.log_p = np.load(path, mmap_mode="c")  # torch warns about read-only arrays

    def _record(self, model: PreTrainedModel, path: Path) -> None:
        shape = (*self.ids.shape, model.config.vocab_size)
        unfinished = path.with_suffix(".tmp")
        stored = np.lib.format.open_memmap(unfinished, "w+", np.float32, shape)
        for place, part in zip(stored, self.ids, strict=True):
            place[:] = log_probabilities(model, part).numpy()
        unfinished.rename(path)

    @property
    def perplexity(self) -> float:
        losses = [loss(torch.from_numpy(log_p), ids) for log_p, ids in zip(self.log_p, self.ids, strict=True)]
        return float(torch.cat(losses).double().mean().exp())

    def compare(self, name: str, weights: Weights) -> Accuracy:
        """Divergence of the model with ``weights`` from this one."""
        bits, model = 8 * weights.nbytes / self.parameters, with_weights(load(self.folder), weights.tensors)
        kl, same, losses = [], [], []
        for stored, ids in zip(self.log_p, self.ids, strict=True):
            log_p, log_q = torch.from_numpy(stored), log_probabilities(model, ids)
            kl.append((log_p.exp() * (log_p - log_q)).sum(-1).double().numpy())
            same.append((log_p.argmax(-1) == log_q.argmax(-1)).numpy())
            losses.append(loss(log_q, ids))
        return Accuracy(
            name=name,
            bits=bits,
            megabytes=weights.nbytes / 1e6,
            positions=self.ids.numel(),
            divergence=divergence_of(np.concatenate(kl), np.concatenate(same), PART),
            perplexity=float(torch.cat(losses).double().mean().exp()),
            part_divergences=[round(float(part.mean()), 8) for part in kl],
        )


def load(folder: Path) -> PreTrainedModel:
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model


@torch.inference_mode()
def log_probabilities(model: PreTrainedModel, ids: torch.Tensor) -> torch.Tensor:
    """Log-probabilities of the next token at each position of ids [length]: float32 [length, V]."""
    return torch.log_softmax(model(ids[None]).logits[0].float(), -1)


def loss(log_probability: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """The loss -log p of the tokens after the first, [length - 1]."""
    return -log_probability[torch.arange(len(ids) - 1), ids[1:]]


def with_weights(model: PreTrainedModel, weights: Mapping[str, np.ndarray]) -> PreTrainedModel:
    """Set the model's weights by Hugging Face's names. Raises RuntimeError when one is missing."""
    parameters = dict(model.named_parameters())
    if missing := sorted(parameters.keys() - weights.keys()):
        raise RuntimeError(f"no weight for {missing[0]} and {len(missing) - 1} more")
    for name, parameter in parameters.items():
        parameter.data.copy_(torch.from_numpy(weights[name].astype(np.float32)))
    return model
