"""Layers that record statistics of their inputs, for calibration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op
from quantization.rewrite import Exceptions

Statistic = Callable[[Tensor], Tensor]
Record = Callable[[Tensor], None]


def sum_of_squares(x: Tensor) -> Tensor:
    """float32 [K], over all but the last axis of x [..., K]"""
    wide = x.astype("float32")
    return op.sum(wide * wide, axis=list(range(x.ndim - 1)))


def inputs(x: Tensor) -> Tensor:
    """The rows of x [..., K], float32 [rows, K]"""
    return x.astype("float32").reshape(-1, x.shape[-1])


class Observer:
    """The statistics of the layers of a model in the function that is being traced.

    names: of the parameters that quantization would encode, in the order of the model's layers.
    """

    def __init__(self, model: nn.Module, exceptions: Exceptions):
        """Replace layers of ``model`` by ones that record their inputs, with the same parameters."""
        self._statistic: Statistic = sum_of_squares
        self._wanted: frozenset[str] = frozenset()
        self._recorded: dict[str, list[Tensor]] = {}
        self.names = [self._observe(model, path, layer) for path, layer in observable(model, exceptions).items()]

    def start(self, statistic: Statistic, names: Sequence[str]) -> None:
        """Forget what was recorded; from now on record ``statistic`` for the parameters ``names``."""
        self._statistic, self._wanted, self._recorded = statistic, frozenset(names), {}

    @property
    def recorded(self) -> Mapping[str, list[Tensor]]:
        """One statistic for each time that a parameter's layer ran; parameters whose layers did not run are absent."""
        return self._recorded

    def _observe(self, model: nn.Module, path: str, layer: nn.Module) -> str:
        name = f"{path}.weight"

        def record(x: Tensor) -> None:
            if name in self._wanted:
                made = self._statistic(x)
                self._recorded.setdefault(name, []).append(made)

        model.replace(path, _observed(layer, record))
        return name


def observable(model: nn.Module, exceptions: Exceptions) -> dict[str, nn.Module]:
    """The layers whose weights schemes quantize, by path."""
    kinds = nn.Linear | nn.Embedding | nn.Experts
    modules = model.named_modules()
    return {path: layer for path, layer in modules if isinstance(layer, kinds) and not exceptions.is_kept(path)}


class _ObservedLinear(nn.Linear):
    def __init__(self, layer: nn.Linear, record: Record):
        vars(self).update(vars(layer))
        self.record = record

    def forward(self, x: Tensor) -> Tensor:
        self.record(x)
        return super().forward(x)


class _ObservedExperts(nn.Experts):
    """Experts share a statistic: that of all rows, whichever expert they are for."""

    def __init__(self, layer: nn.Experts, record: Record):
        vars(self).update(vars(layer))
        self.record = record

    def forward(self, x: Tensor, experts: Tensor, rows: Tensor | None = None) -> Tensor:
        self.record(x)
        return super().forward(x, experts, rows)


class _ObservedEmbedding(nn.Embedding):
    """Records its inputs as an output head; looking up rows has none."""

    def __init__(self, layer: nn.Embedding, record: Record):
        vars(self).update(vars(layer))
        self.record = record

    def lm_head_forward(self, x: Tensor) -> Tensor:
        self.record(x)
        return super().lm_head_forward(x)


def _observed(layer: nn.Module, record: Record) -> nn.Module:
    match layer:
        case nn.Linear():
            return _ObservedLinear(layer, record)
        case nn.Experts():
            return _ObservedExperts(layer, record)
    assert isinstance(layer, nn.Embedding)
    return _ObservedEmbedding(layer, record)
