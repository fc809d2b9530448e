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
    """Sums of squares, float32 [K], over all but the last axis of x [..., K]."""
    wide = x.astype("float32")
    return op.sum(wide * wide, axis=list(range(x.ndim - 1)))


def largest_magnitudes(x: Tensor) -> Tensor:
    """Maximum magnitudes, float32 [K], over all but the last axis of x [..., K]."""
    return op.max(op.abs(x.astype("float32")), axis=list(range(x.ndim - 1)))


def inputs(x: Tensor) -> Tensor:
    """The rows of x [..., K], as float32 [rows, K]."""
    return x.astype("float32").reshape(-1, x.shape[-1])


class Observer:
    """Records statistics of layer inputs while a function of the model is traced.

    names: the quantized parameters, in the order of the model's layers. Experts share one statistic over
    all rows. An embedding table records its inputs only when it is used as an output head.
    """

    def __init__(self, model: nn.Module, scheme: Scheme, exceptions: Exceptions):
        """Quantize ``model`` to a group scheme; its quantized layers record their inputs."""
        self._statistic: Statistic = sum_of_squares
        self._wanted: frozenset[str] = frozenset()
        self._recorded: dict[str, list[Tensor]] = {}
        self.names = list(quantize_model(model, scheme, exceptions))
        layers = dict(model.named_modules())
        for name in self.names:
            self._observe(name, layers[name.removesuffix(".weight")])

    def start(self, statistic: Statistic, names: Sequence[str]) -> None:
        """Clear the records, and record ``statistic`` for the parameters ``names`` from now on."""
        self._statistic, self._wanted, self._recorded = statistic, frozenset(names), {}

    @property
    def recorded(self) -> Mapping[str, list[Tensor]]:
        """One statistic per call of a parameter's layer; parameters whose layers did not run are absent."""
        return self._recorded

    def _observe(self, name: str, layer: nn.Module) -> None:
        """Wrap the layer's method, on this instance only, to record its input first."""
        method = "lm_head_forward" if isinstance(layer, GroupQuantizeEmbedding) else "forward"
        own = getattr(layer, method)

        def observed(x: Tensor, *others: Any) -> Tensor:
            if name in self._wanted:
                self._recorded.setdefault(name, []).append(self._statistic(x))
            return own(x, *others)

        setattr(layer, method, observed)
