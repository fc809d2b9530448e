"""Weight map rules for experts, whose weights are stored per expert or stacked per layer."""

from __future__ import annotations

from model_zoo.weight_expr import CheckpointTensor, Concat, Stack
from model_zoo.weight_map import WeightMap

EXPERT_TENSORS = ("gate_proj", "up_proj", "down_proj")
"""Names of tensors [E, out, in] of all experts of a layer."""


def expert_rules(
    m: WeightMap, up: str, down: str, count: int, stacked: str, separate: str, names: tuple[str, str, str]
) -> None:
    """Map the parameters ``up``, whose rows are gates, then inputs, and ``down`` of ``count`` experts.

    stacked: path of ``gate_up_proj`` and ``down_proj`` (transformers 5) or of ``EXPERT_TENSORS``. separate: path of
    expert ``{}``. names: those of its gate, up and down projection.
    """

    def of_all(name: str) -> list[CheckpointTensor]:
        return [CheckpointTensor(f"{separate.format(expert)}.{name}.weight") for expert in range(count)]

    gate, inner, outer = map(of_all, names)
    m.either(up, Stack(tuple(map(Concat, zip(gate, inner, strict=True)))), f"{stacked}.gate_up_proj", joined(stacked))
    m.either(down, Stack(tuple(outer)), f"{stacked}.down_proj", f"{stacked}.{EXPERT_TENSORS[2]}.weight")


def joined(stacked: str, kind: str = "weight") -> Concat:
    """Concatenate gates and inputs of all experts, which are separate in GGUF files; kind: "weight" or "bias"."""
    return Concat(tuple(CheckpointTensor(f"{stacked}.{name}.{kind}") for name in EXPERT_TENSORS[:2]), axis=1)
