"""``tvm.relax.frontend.nn`` and the older ``tvm.relax.testing.nn``: ``mlc_compiler.nn`` with additions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlc_errors import UnsupportedError

from .. import nn
from ..ir.module import IRModule
from ..nn import (
    GELU,
    Embedding,
    ExternModule,
    GroupNorm,
    LayerNorm,
    Linear,
    ModuleList,
    ObjectModule,
    Parameter,
    ReLU,
    SiLU,
    SourceModule,
    Tensor,
    op,
)
from ..nn.tensor import emit
from ..relax.builder import BlockBuilder
from . import nn_spec as spec
from .nn_cache import PagedKVCache, RopeMode, TIRPagedKVCache
from .nn_effects import KVCache, caches, mark_start, with_caches


class Module(nn.Module):
    """Base class of layers and models."""

    def export_tvm(
        self, spec: nn.spec.ModuleSpec | Mapping[str, Any], debug: bool = False
    ) -> tuple[IRModule, list[tuple[str, Parameter]]]:
        """As ``export``; the parameters are a list of names and parameters. Functions may take ``KVCache``."""
        functions = spec if isinstance(spec, nn.spec.ModuleSpec) else nn.spec.ModuleSpec.from_raw(spec, self)
        mod, parameters = self.export(with_caches(functions, self), debug)
        return mark_start(mod), list(parameters.items())

    def to(self, dtype: str | None = None) -> Module:
        """Set the dtype of the parameters and of the caches; None leaves them."""
        for cache in caches(self).values():
            cache.to(dtype)
        if dtype is not None:
            super().to(dtype)
        return self


class RMSNorm(nn.RMSNorm):
    """``x * weight / sqrt(mean(x^2) + epsilon) + bias`` over the last axis.

    axes: must be the last axis. bias: whether to add a bias.
    """

    def __init__(
        self,
        hidden_size: int,
        axes: int | Sequence[int],
        epsilon: float = 1e-5,
        bias: bool = True,
        dtype: str = "float32",
    ):
        if axes not in (-1, [-1], (-1,)):
            raise UnsupportedError(f"RMSNorm: axes is {axes}; expected -1, the last axis")
        super().__init__(hidden_size, epsilon, dtype)
        self.bias = Parameter((hidden_size,), dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        normalized = super().forward(x)
        return normalized if self.bias is None else normalized + self.bias.astype(x.dtype)


def Placeholder(shape: Sequence[Any], dtype: str = "float32", name: str = "input") -> Tensor:
    """A placeholder for an input of the function being built."""
    return Tensor.placeholder(shape, dtype, name)


def emit_te(f: Callable[..., Any], *args: Any) -> Tensor:
    """Call a tensor expression on traced tensors."""
    return Tensor(BlockBuilder.current().emit_te(f, *(a.expr if isinstance(a, Tensor) else a for a in args)))


__all__ = [
    "GELU",
    "Embedding",
    "ExternModule",
    "GroupNorm",
    "KVCache",
    "LayerNorm",
    "Linear",
    "Module",
    "ModuleList",
    "ObjectModule",
    "PagedKVCache",
    "Parameter",
    "Placeholder",
    "RMSNorm",
    "ReLU",
    "RopeMode",
    "SiLU",
    "SourceModule",
    "TIRPagedKVCache",
    "Tensor",
    "emit",
    "emit_te",
    "op",
    "spec",
]
