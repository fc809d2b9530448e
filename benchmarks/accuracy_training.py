"""Train models for measuring quantization: AdamW on random pieces of a text, in float32, seeded."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel

FACTS = "accuracy_model.json"  # in the folder of a trained model
WARM_UP = 20  # steps
PRINTED = 10  # steps


@dataclass(frozen=True)
class Run:
    """Steps with ``batch`` pieces of ``length`` tokens. rate: maximum learning rate, with cosine decay to 0."""

    steps: int
    batch: int
    length: int
    rate: float
    seed: int = 0


@dataclass(frozen=True)
class Facts:
    """Facts about a trained model, for documents. first_loss, last_loss: means of ten steps, in nats.

    moved: for models trained further, the median change of a weight, in steps of Q4_1's grid.
    """

    title: str
    parameters: int
    steps: int
    tokens: int
    first_loss: float
    last_loss: float
    moved: float | None = None

    def save(self, folder: Path) -> None:
        (folder / FACTS).write_text(json.dumps(asdict(self), indent=2) + "\n")


def train(model: PreTrainedModel, ids: torch.Tensor, run: Run) -> tuple[float, float]:
    """Train a model in place on token ids [n]. Returns the mean loss of the first and of the last PRINTED steps."""
    generator = torch.Generator().manual_seed(run.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=run.rate, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, run.steps))
    losses: list[float] = []
    model.train()
    for step in range(run.steps):
        starts = torch.randint(len(ids) - run.length, (run.batch,), generator=generator)
        pieces = torch.stack([ids[start : start + run.length] for start in starts.tolist()])
        loss = model(input_ids=pieces, labels=pieces).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if (step + 1) % PRINTED == 0:
            print(f"step {step + 1} of {run.steps}: loss {_mean(losses[-PRINTED:]):.3f}", flush=True)
    model.eval()
    return _mean(losses[:PRINTED]), _mean(losses[-PRINTED:])


def _rate(step: int, steps: int) -> float:
    """The learning rate as a share of the maximum."""
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    return 0.5 * (1 + math.cos(math.pi * (step - WARM_UP) / max(1, steps - WARM_UP)))


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
