"""Rules for the weights of experts, of which checkpoints have a tensor each, or one for all of a layer."""

from __future__ import annotations

from model_zoo.weight_expr import CheckpointTensor, Concat, Stack
from model_zoo.weight_map import WeightMap


def expert_rules(
    m: WeightMap, up: str, down: str, count: int, stacked: str, separate: str, names: tuple[str, str, str]
) -> None:
    """The parameters ``up``, with the rows of gates before those of inputs, and ``down`` of ``count`` experts.

    stacked: the path of ``gate_up_proj`` and ``down_proj``, as transformers 5 has them, or of ``gate_proj``,
    ``up_proj`` and ``down_proj``, of GGUF files. separate: the path of expert ``{}``, with ``names`` of its gate, its
    input and its output.
    """

    def of_all(name: str) -> list[CheckpointTensor]:
        return [CheckpointTensor(f"{separate.format(expert)}.{name}.weight") for expert in range(count)]

    gate, inner, outer = map(of_all, names)
    joined = Concat(tuple(CheckpointTensor(f"{stacked}.{name}_proj.weight") for name in ("gate", "up")), axis=1)
    m.either(up, Stack(tuple(map(Concat, zip(gate, inner, strict=True)))), f"{stacked}.gate_up_proj", joined)
    m.either(down, Stack(tuple(outer)), f"{stacked}.down_proj", f"{stacked}.down_proj.weight")
