"""Make a float32 model whose weights are not on a quantization grid, for measuring quantization.

python benchmarks/accuracy_model.py CHECKPOINT_FOLDER OUTPUT_FOLDER [--steps N]

The only checkpoint available without a download is a 4-bit file (Q4_1), whose grid a 4-bit scheme with the same groups
would recover. Uniform noise of half a step to both sides, the distribution of rounding errors, is added to each
weight of a layer. Then the model is trained on docstrings of installed packages, which restores the correlations
of trained weights. Seeded.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from accuracy_texts import training_text
from accuracy_training import Facts, Run, train
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

GROUP, LEVELS = 32, 16  # Q4_1's group size and number of levels
SEED = 0
BATCH, LENGTH, RATE = 1, 256, 2e-4
TITLE = "SmolLM2-135M-Instruct, off its grid and trained on"


def dither(model: PreTrainedModel) -> None:
    """Add noise to the matrices of the layers; embedding tables, which have 8 bits in such files, are not changed."""
    generator = torch.Generator().manual_seed(SEED)
    for weight in matrices(model):
        groups = weight.view(-1, GROUP)
        groups += (torch.rand(groups.shape, generator=generator) - 0.5) * grid_step(groups)


def matrices(model: PreTrainedModel) -> Iterator[torch.Tensor]:
    """The matrices [N, K] of the layers."""
    for name, weight in model.named_parameters():
        if weight.ndim == 2 and "layers" in name:
            yield weight.data


def grid_step(groups: torch.Tensor) -> torch.Tensor:
    """The step of the quantization grid of weights in groups [n, GROUP]: [n, 1]."""
    return (groups.amax(1, keepdim=True) - groups.amin(1, keepdim=True)) / (LEVELS - 1)


def moved(model: PreTrainedModel, before: list[torch.Tensor]) -> float:
    """The median change of the weights, in steps of the grid."""
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
