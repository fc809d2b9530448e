"""A float32 model whose weights lie on no quantization grid, for measuring quantization.

python benchmarks/accuracy_model.py CHECKPOINT_FOLDER OUTPUT_FOLDER [--steps N]

The one checkpoint at hand comes from a file with 4 bits (Q4_1), so that a 4-bit scheme with the same groups would find
the grid again. To each weight of a layer a random number is added, uniform within half a step to both sides: what
rounding took away is distributed like that. Then the model is trained, on docstrings of installed packages:
weights become those of a trained model again, with the correlations that noise has not. Seeded.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from accuracy_texts import training_text
from accuracy_training import Facts, Run, train
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

GROUP, LEVELS = 32, 16  # of Q4_1
SEED = 0
BATCH, LENGTH, RATE = 1, 256, 2e-4
TITLE = "SmolLM2-135M-Instruct, off its grid and trained on"


def dither(model: PreTrainedModel) -> None:
    """Add noise to the matrices of the layers; tables of tokens have 8 bits in such files, and stay."""
    generator = torch.Generator().manual_seed(SEED)
    for weight in matrices(model):
        groups = weight.view(-1, GROUP)
        groups += (torch.rand(groups.shape, generator=generator) - 0.5) * grid_step(groups)


def matrices(model: PreTrainedModel) -> Iterator[torch.Tensor]:
    """Those of the layers, [N, K] each."""
    for name, weight in model.named_parameters():
        if weight.ndim == 2 and "layers" in name:
            yield weight.data


def grid_step(groups: torch.Tensor) -> torch.Tensor:
    """Of weights in groups [n, GROUP], [n, 1]."""
    return (groups.amax(1, keepdim=True) - groups.amin(1, keepdim=True)) / (LEVELS - 1)


def moved(model: PreTrainedModel, before: list[torch.Tensor]) -> float:
    """The median change of a weight, in steps of the grid."""
    changes = []
    for weight, old in zip(matrices(model), before, strict=True):
        groups = old.view(-1, GROUP)
        changes.append((weight.view(-1, GROUP) - groups).abs() / grid_step(groups))
    return float(torch.cat(changes).median())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--steps", type=int, default=200, help=f"of {BATCH * LENGTH} tokens")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    tokenizer = AutoTokenizer.from_pretrained(args.checkpoint)
    model = AutoModelForCausalLM.from_pretrained(args.checkpoint, dtype=torch.float32)
    before = [weight.clone() for weight in matrices(model)]
    dither(model)
    ids = torch.tensor(tokenizer(training_text())["input_ids"])
    first, last = train(model, ids, Run(args.steps, BATCH, LENGTH, RATE))
    model.save_pretrained(args.output)
    tokenizer.save_pretrained(args.output)
    tokens, parameters = args.steps * BATCH * LENGTH, sum(p.numel() for p in model.parameters())
    Facts(TITLE, parameters, args.steps, tokens, first, last, moved(model, before)).save(args.output)


if __name__ == "__main__":
    main()
