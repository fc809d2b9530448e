"""Layers that record statistics of their inputs, for calibration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op
from quantization.rewrite import Exceptions, GroupQuantizeEmbedding, quantize_model
from quantization.schemes import Scheme

Statistic = Callable[[Tensor], Tensor]


def sum_of_squares(x: Tensor) -> Tensor:
    """float32 [K], over all but the last axis of x [..., K]"""
    wide = x.astype("float32")
    return op.sum(wide * wide, axis=list(range(x.ndim - 1)))


def largest_magnitudes(x: Tensor) -> Tensor:
    """float32 [K], over all but the last axis of x [..., K]"""
    return op.max(op.abs(x.astype("float32")), axis=list(range(x.ndim - 1)))


def inputs(x: Tensor) -> Tensor:
    """The rows of x [..., K], float32 [rows, K]"""
    return x.astype("float32").reshape(-1, x.shape[-1])


class Observer:
    """The statistics of the layers of a model in the function that is being traced.

    names: of the parameters that are quantized, in the order of the model's layers. Experts share a statistic: that of
    all rows, whichever expert they are for. A token table records its inputs as an output head; looking up rows has
    none.
    """

    def __init__(self, model: nn.Module, scheme: Scheme, exceptions: Exceptions):
        """Quantize ``model`` to a scheme of groups; its quantized layers record their inputs."""
        self._statistic: Statistic = sum_of_squares
        self._wanted: frozenset[str] = frozenset()
        self._recorded: dict[str, list[Tensor]] = {}
        self.names = list(quantize_model(model, scheme, exceptions))
        layers = dict(model.named_modules())
        for name in self.names:
            self._observe(name, layers[name.removesuffix(".weight")])

    def start(self, statistic: Statistic, names: Sequence[str]) -> None:
        """Forget what was recorded; from now on record ``statistic`` for the parameters ``names``."""
        self._statistic, self._wanted, self._recorded = statistic, frozenset(names), {}

    @property
    def recorded(self) -> Mapping[str, list[Tensor]]:
        """One statistic for each time that a parameter's layer ran; parameters whose layers did not run are absent."""
        return self._recorded

    def _observe(self, name: str, layer: nn.Module) -> None:
        """Put a method that records before the layer's own, in the layer alone."""
        method = "lm_head_forward" if isinstance(layer, GroupQuantizeEmbedding) else "forward"
        own = getattr(layer, method)

        def observed(x: Tensor, *others: Any) -> Tensor:
            if name in self._wanted:
                self._recorded.setdefault(name, []).append(self._statistic(x))
            return own(x, *others)

        setattr(layer, method, observed)
