"""Base configuration and weight map rules of models in which some layers have a recurrent state."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mlc_errors import MLCError
from model_zoo.config import BaseConfig, LayerKinds
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER

FULL = "full_attention"
OLD_TYPES = {"attention": FULL, "mamba": "linear_attention"}
"""Names of layer types in older files -> current names."""


@dataclass(frozen=True, kw_only=True)
class HybridConfig(BaseConfig):
    """layer_types: a name in ``kinds_by_type`` for each layer; by default ``default_layer_types()``."""

    layer_types: Sequence[str] | None = None

    def __post_init__(self) -> None:
        types = self.default_layer_types() if self.layer_types is None else self.layer_types
        object.__setattr__(self, "layer_types", tuple(OLD_TYPES.get(name, name) for name in types))
        super().__post_init__()
        self._check_layer_types()

    @property
    def kinds_by_type(self) -> Mapping[str, LayerKinds]:
        """The states of a layer by its type."""
        raise NotImplementedError

    @property
    def layer_kinds(self) -> tuple[LayerKinds, ...]:
        kinds = self.kinds_by_type
        return tuple(kinds[name] for name in self.types)

    @property
    def types(self) -> tuple[str, ...]:
        """The type of each layer."""
        return tuple(self.layer_types or ())[: self.num_hidden_layers]

    def default_layer_types(self) -> tuple[str, ...]:
        """The layer types if the config has none. Raises MLCError unless overridden."""
        raise MLCError("missing key layer_types", where=["config.json"])

    def _check_layer_types(self) -> None:
        known = self.kinds_by_type
        unknown = sorted(set(self.types) - set(known))
        if unknown:
            raise MLCError(
                f"layer_types: got {unknown[0][:80]!r}; expected {' or '.join(known)}", where=["config.json"]
            )
        if len(self.types) < self.num_hidden_layers:
            raise MLCError(
                f"layer_types: got {len(self.types)} entries; expected {self.num_hidden_layers}", where=["config.json"]
            )


def layers_of(m: WeightMap, c: HybridConfig, types: Container[str], pattern: str) -> Iterator[tuple[str, str]]:
    """(prefix in the model, prefix in the checkpoint) of each layer of some types. pattern: the checkpoint's."""
    count = c.num_hidden_layers
    for layer, theirs, kind in zip(m.layers(LAYER, count), m.layers(pattern, count), c.types, strict=True):
        if kind in types:
            yield layer, theirs


def conv_taps(
    m: WeightMap, c: HybridConfig, types: Container[str], target: str, source: str, pattern: str = LAYER
) -> None:
    """Add rules for convolutions in layers of some types, ``target`` in the model and ``source`` in the checkpoint."""
    for layer, theirs in layers_of(m, c, types, pattern):
        m.taps(f"{layer}.{target}", f"{theirs}.{source}")
