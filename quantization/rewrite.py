"""A model's layers rewritten for a scheme: Linear and Embedding become layers that hold codes and scales."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from mlc_compiler import nn
from mlc_compiler.nn import Parameter, Tensor, op
from mlc_errors import UnsupportedError
from quantization import fp8
from quantization.schemes import Scheme


@dataclass(frozen=True)
class Exceptions:
    """Layers that are not quantized like the others, as shell patterns of their paths.

    final_fc: output heads, which some schemes leave alone. never: layers that no scheme quantizes.
    """

    final_fc: tuple[str, ...] = ("lm_head",)
    never: tuple[str, ...] = ()

    def is_final_fc(self, path: str) -> bool:
        return any(fnmatchcase(path, pattern) for pattern in self.final_fc)

    def is_never(self, path: str) -> bool:
        return any(fnmatchcase(path, pattern) for pattern in self.never)


@dataclass(frozen=True)
class QuantizeMap:
    """Which parameters were quantized, and in which layout ("NK" or "KN") their codes and scales are stored."""

    layouts: Mapping[str, str]

    def __contains__(self, name: str) -> bool:
        return name in self.layouts

    def __iter__(self) -> Iterator[str]:
        return iter(self.layouts)

    def layout(self, name: str) -> str:
        return self.layouts[name]

    def tensors(self, name: str) -> tuple[str, ...]:
        """The parameters that took the place of ``name``: its codes and its scales; itself when it was kept."""
        return quantized_names(name) if name in self.layouts else (name,)


def quantized_names(name: str) -> tuple[str, str]:
    """``x.weight`` -> ``x.q_weight``, ``x.q_scale``"""
    path = name.removesuffix("weight")
    return f"{path}q_weight", f"{path}q_scale"


class GroupQuantized(nn.Module):
    """Codes and scales of a matrix [N, K], and the matrix that they stand for."""

    def __init__(self, scheme: Scheme, n: int, k: int, layout: str):
        self.scheme, self.k, self.layout = scheme, k, layout
        words, groups = (n, scheme.words(k)), (n, scheme.groups(k))
        if layout == "KN":
            words, groups = words[::-1], groups[::-1]
        self.q_weight = Parameter(words, scheme.storage_dtype)
        self.q_scale = Parameter(groups, scheme.model_dtype)

    def dequantized(self, q: Tensor, scale: Tensor, dtype: str) -> Tensor:
        s = self.scheme
        return op.dequantize(q, scale, bits=s.bits, group=s.group, k=self.k, layout=self.layout, dtype=dtype)

    def times(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """``x @ matrix.T + bias``"""
        return op.linear(x, self.dequantized(self.q_weight, self.q_scale, x.dtype), bias)


class GroupQuantizeLinear(GroupQuantized):
    """``nn.Linear`` with group-quantized weight; the bias, if any, is kept."""

    def __init__(self, linear: nn.Linear, scheme: Scheme):
        super().__init__(scheme, linear.out_features, linear.in_features, scheme.layout)
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.times(x, self.bias)


class GroupQuantizeEmbedding(GroupQuantized):
    """``nn.Embedding`` with a group-quantized table, always [N, K]; the rows taken are what is dequantized."""

    def __init__(self, embedding: nn.Embedding, scheme: Scheme):
        super().__init__(scheme, embedding.num, embedding.dim, "NK")

    def forward(self, indices: Tensor) -> Tensor:
        rows = op.take(self.q_weight, indices, axis=0), op.take(self.q_scale, indices, axis=0)
        return self.dequantized(*rows, "float32")

    def lm_head_forward(self, x: Tensor) -> Tensor:
        """The table as output head: ``x @ table.T``."""
        return self.times(x)


class PerTensorQuantizeLinear(nn.Module):
    """``nn.Linear`` with its weight in float8, times one scale where the scheme has scales.

    ``q_calibration_scale`` belongs to the format; it would scale float8 activations, which stay in their own type here.
    """

    layout = "NK"
    q_weight: Parameter
    q_scale: Parameter

    def __init__(self, linear: nn.Linear, scheme: Scheme):
        made = fp8.tensors((linear.out_features, linear.in_features), scheme, self.layout)
        for name, (shape, dtype) in made.items():
            setattr(self, name, Parameter(shape, dtype))
        self.scaled = scheme.scaled
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        y = op.linear(x, self.q_weight)
        y = y * self.q_scale.astype(x.dtype) if self.scaled else y
        return y + self.bias.astype(x.dtype) if self.bias is not None else y


def quantize_model(model: nn.Module, scheme: Scheme, exceptions: Exceptions = Exceptions()) -> QuantizeMap:
    """Rewrites ``model`` in place and sets the storage type of what is left.

    Raises UnsupportedError for a scheme whose layers are not built in.
    """
    model.to(scheme.model_dtype)
    if scheme.kind == "none":
        return QuantizeMap({})
    if scheme.kind not in ("group", "fp8"):
        raise UnsupportedError(f"quantization {scheme.name}: got kind {scheme.kind!r}; expected none, group or fp8")
    layouts = {}
    for path, layer in list(model.named_modules()):
        replacement = _quantized(path, layer, scheme, exceptions)
        if replacement is not None:
            model.replace(path, replacement)
            layouts[f"{path}.weight"] = replacement.layout
    return QuantizeMap(layouts)


def _quantized(
    path: str, layer: nn.Module, scheme: Scheme, exceptions: Exceptions
) -> GroupQuantized | PerTensorQuantizeLinear | None:
    if exceptions.is_never(path):
        return None
    if isinstance(layer, nn.Embedding):
        return GroupQuantizeEmbedding(layer, scheme) if scheme.quantize_embedding else None
    if isinstance(layer, nn.Linear):
        kept = exceptions.is_final_fc(path) and not scheme.quantize_final_fc
        linear = PerTensorQuantizeLinear if scheme.kind == "fp8" else GroupQuantizeLinear
        return None if kept else linear(layer, scheme)
    return None
