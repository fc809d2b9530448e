"""A float32 model whose weights lie on no quantization grid, for measuring quantization.

python benchmarks/accuracy_model.py CHECKPOINT_FOLDER OUTPUT_FOLDER

The one checkpoint at hand comes from a file with 4 bits (Q4_1), so that a 4-bit scheme with the same groups would find
the grid again. To each weight of a layer a random number is added, uniform within half a step to both sides: what
rounding took away is distributed like that. Seeded.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

GROUP, LEVELS = 32, 16  # of Q4_1
SEED = 0


def dither(model: PreTrainedModel) -> None:
    """Add noise to the matrices of the layers; tables of tokens have 8 bits in such files, and stay."""
    generator = torch.Generator().manual_seed(SEED)
    for name, weight in model.named_parameters():
        if weight.ndim != 2 or "layers" not in name:
            continue
        groups = weight.data.view(-1, GROUP)
        step = (groups.amax(1, keepdim=True) - groups.amin(1, keepdim=True)) / (LEVELS - 1)
        groups += (torch.rand(groups.shape, generator=generator) - 0.5) * step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("output", type=Path)
    args = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(args.checkpoint, dtype=torch.float32)
    dither(model)
    model.save_pretrained(args.output)
    AutoTokenizer.from_pretrained(args.checkpoint).save_pretrained(args.output)


if __name__ == "__main__":
    main()
