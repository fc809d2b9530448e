"""Quantize a model's layers: Linear, Embedding and Experts are replaced by layers of codes and scales."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from mlc_compiler import nn
from mlc_compiler.nn import Parameter, Tensor, op
from mlc_compiler.nn.layers import with_expert_bias
from mlc_errors import UnsupportedError
from quantization import faster_transformer, fp8, group, rows
from quantization.schemes import HEAD, MANY_ROWS, TABLE, Scheme
from quantization.stored_layers import StoredExperts, StoredLinear, rounded_to_float8


@dataclass(frozen=True)
class Exceptions:
    """Layers with special treatment, as shell patterns of their paths.

    final_fc: output heads. kept: layers that are never quantized, such as the routers of experts.
    """

    final_fc: tuple[str, ...] = ("lm_head",)
    kept: tuple[str, ...] = ()

    def is_final_fc(self, path: str) -> bool:
        return any(fnmatchcase(path, pattern) for pattern in self.final_fc)

    def is_kept(self, path: str) -> bool:
        return any(fnmatchcase(path, pattern) for pattern in self.kept)


def quantized_names(name: str) -> tuple[str, str]:
    """The names of codes and scales: ``x.weight`` -> ``x.q_weight``, ``x.q_scale``."""
    path = name.removesuffix("weight")
    return f"{path}q_weight", f"{path}q_scale"


class GroupQuantized(nn.Module):
    """Codes and scales of a weight [..., N, K], and their dequantization."""

    q_weight: Parameter
    q_scale: Parameter

    def __init__(self, weight: Parameter, scheme: Scheme, layout: str):
        self.scheme, self.k, self.layout = scheme, weight.shape[-1], layout
        for name, (shape, dtype) in group.tensors(weight.shape, scheme, layout).items():
            setattr(self, name, Parameter(shape, dtype))

    def dequantized(self, q: Tensor, scale: Tensor, dtype: str) -> Tensor:
        s = self.scheme
        return op.dequantize(
            q, scale, bits=s.bits, group=s.group, k=self.k, layout=self.layout, dtype=dtype, values=s.values
        )

    def taken(self, indices: Tensor, dtype: str) -> Tensor:
        """Take rows of the weight along axis 0, and dequantize only these."""
        codes, scales = (op.take(x, indices, axis=0) for x in (self.q_weight, self.q_scale))
        return self.dequantized(codes, scales, dtype)

    def times(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """``x @ weight.T + bias``"""
        return op.linear(x, self.dequantized(self.q_weight, self.q_scale, x.dtype), bias)


class GroupQuantizeLinear(GroupQuantized):
    """``nn.Linear`` with a group-quantized weight; a bias is not quantized."""

    def __init__(self, linear: nn.Linear, scheme: Scheme):
        super().__init__(linear.weight, scheme, scheme.layout)
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.times(x, self.bias)


class GroupQuantizeEmbedding(GroupQuantized):
    """``nn.Embedding`` with a group-quantized table, always [N, K]."""

    def __init__(self, embedding: nn.Embedding, scheme: Scheme):
        super().__init__(embedding.weight, scheme, "NK")

    def forward(self, indices: Tensor) -> Tensor:
        return self.taken(indices, "float32")

    def lm_head_forward(self, x: Tensor) -> Tensor:
        """Use the table as output head: ``x @ table.T``."""
        return self.times(x)


class QuantizedRows(nn.Module):
    """A linear layer or a token table whose ranges of rows have different schemes; see ``rows``."""

    layout = "NK"

    def __init__(self, layer: nn.Linear | nn.Embedding, scheme: Scheme):
        self.bias = layer.bias if isinstance(layer, nn.Linear) else None
        outputs, inputs = (int(size) for size in layer.weight.shape)
        ranges = scheme.of_rows(outputs)
        self.ranges = [of for of, _ in ranges]
        self.parts = nn.ModuleList(
            GroupQuantizeEmbedding(nn.Embedding(of.stop - of.start, inputs, layer.weight.dtype), part)
            for of, part in ranges
        )

    def times(self, x: Tensor) -> Tensor:
        """``x @ weight.T + bias``"""
        y = op.concat([part.lm_head_forward(x) for part in self.parts], dim=-1)
        return y if self.bias is None else y + self.bias.astype(y.dtype)


class QuantizedRowsLinear(QuantizedRows):
    """``nn.Linear`` with several schemes."""

    def forward(self, x: Tensor) -> Tensor:
        return self.times(x)


class QuantizedRowsEmbedding(QuantizedRows):
    """``nn.Embedding`` with several schemes."""

    def forward(self, indices: Tensor) -> Tensor:
        found = self.parts[0](op.minimum(indices, self.ranges[0].stop - 1))
        for of, part in zip(self.ranges[1:], self.parts.modules[1:], strict=True):
            own = part(op.clip(indices - of.start, 0, of.stop - of.start - 1))
            found = op.where(op.unsqueeze(indices >= of.start, -1), own, found)
        return found

    def lm_head_forward(self, x: Tensor) -> Tensor:
        """Use the table as output head: ``x @ table.T``."""
        return self.times(x)


class GroupQuantizeExperts(GroupQuantized):
    """``nn.Experts`` with a group-quantized weight."""

    def __init__(self, experts: nn.Experts, scheme: Scheme):
        super().__init__(experts.weight, scheme, scheme.layout)
        self.num_experts, self.bias = experts.num_experts, experts.bias

    def forward(self, x: Tensor, experts: Tensor, rows: Tensor | None = None) -> Tensor:
        weight = self.dequantized(self.q_weight, self.q_scale, x.dtype)
        return with_expert_bias(op.expert_linear(x, weight, experts, rows), self.bias, experts)


class PerTensorQuantized(nn.Module):
    """A weight in float8, with one scale if the scheme has scales.

    If the scheme rounds inputs of matmuls to float8, ``q_calibration_scale`` is their scale; the format of other
    schemes has it, too.
    """

    layout = "NK"
    q_weight: Parameter
    q_scale: Parameter
    q_calibration_scale: Parameter

    def __init__(self, weight: Parameter, scheme: Scheme):
        for name, (shape, dtype) in fp8.tensors(weight.shape, scheme, self.layout).items():
            setattr(self, name, Parameter(shape, dtype))
        self.scheme = scheme

    def rounded(self, x: Tensor) -> Tensor:
        """The input x rounded to float8 with its scale, if the scheme rounds inputs."""
        return rounded_to_float8(x, self.q_calibration_scale, self.scheme) if self.scheme.float8_inputs else x

    def scaled(self, y: Tensor) -> Tensor:
        """Multiply the result of a matmul with the codes by the scale."""
        return y * self.q_scale.astype(y.dtype) if self.scheme.scaled else y


class PerTensorQuantizeLinear(PerTensorQuantized):
    """``nn.Linear`` with its weight in float8; a bias is not quantized."""

    def __init__(self, linear: nn.Linear, scheme: Scheme):
        super().__init__(linear.weight, scheme)
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        y = self.scaled(op.linear(self.rounded(x), self.q_weight))
        return y + self.bias.astype(x.dtype) if self.bias is not None else y


class PerTensorQuantizeExperts(PerTensorQuantized):
    """``nn.Experts`` with its weight in float8."""

    def __init__(self, experts: nn.Experts, scheme: Scheme):
        super().__init__(experts.weight, scheme)
        self.num_experts, self.bias = experts.num_experts, experts.bias

    def forward(self, x: Tensor, experts: Tensor, rows: Tensor | None = None) -> Tensor:
        y = self.scaled(op.expert_linear(self.rounded(x), self.q_weight, experts, rows))
        return with_expert_bias(y, self.bias, experts)


def faster_transformer_linear(linear: nn.Linear, scheme: Scheme) -> StoredLinear | GroupQuantizeLinear:
    """The quantized layer: FasterTransformer's format, or groups of inputs if the sizes do not fill its tiles."""
    fits = faster_transformer.fits(linear.weight.shape)
    return StoredLinear(linear, scheme) if fits else GroupQuantizeLinear(linear, scheme.of_ends)


Quantized = GroupQuantized | QuantizedRows | PerTensorQuantized | StoredLinear | StoredExperts
LINEARS: Mapping[str, Callable[[nn.Linear, Scheme], Quantized]] = {
    "group": GroupQuantizeLinear,
    "fp8": PerTensorQuantizeLinear,
    "block": StoredLinear,
    "awq": StoredLinear,
    "ft": faster_transformer_linear,
    "rows": QuantizedRowsLinear,
}
EXPERTS: Mapping[str, Callable[[nn.Experts, Scheme], Quantized]] = {
    "group": GroupQuantizeExperts,
    "fp8": PerTensorQuantizeExperts,
    "block": StoredExperts,
    "awq": StoredExperts,
}


@dataclass(frozen=True)
class WeightFormat:
    """The storage format of one weight. layout: of codes and scales, "NK" or "KN". role: see ``Scheme.parts``."""

    scheme: Scheme
    layout: str
    role: str = ""


def quantize_model(model: nn.Module, scheme: Scheme, exceptions: Exceptions = Exceptions()) -> dict[str, WeightFormat]:
    """Replace layers of ``model`` in place and cast the remaining parameters to the scheme's model_dtype.

    Returns the format of each quantized parameter by its former name, and those of its ranges of rows.
    Raises UnsupportedError for a scheme of unknown kind.
    """
    model.to(scheme.model_dtype)
    if scheme.kind == "none":
        return {}
    if scheme.kind not in LINEARS:
        expected = ", ".join(["none", *LINEARS])
        raise UnsupportedError(f"quantization {scheme.name}: got kind {scheme.kind!r}; expected one of {expected}")
    formats, modules = {}, list(model.named_modules())
    table_role = TABLE if any(exceptions.is_final_fc(path) for path, _ in modules) else HEAD
    for path, layer in modules:
        if exceptions.is_kept(path):
            continue
        role = _role(path, layer, exceptions, table_role)
        part = scheme.part(path, role)
        replacement = _quantized(path, layer, part, exceptions)
        if replacement is not None:
            model.replace(path, replacement)
            formats[f"{path}.weight"] = WeightFormat(part, replacement.layout, role)
            for i, (_, own) in enumerate(part.of_rows(MANY_ROWS)):
                formats[f"{path}.{rows.part_name(i, 'weight')}"] = WeightFormat(own, replacement.layout, role)
    return formats


def _role(path: str, layer: nn.Module, exceptions: Exceptions, table_role: str) -> str:
    """The role of a layer, see ``Scheme.parts``. table_role: HEAD for embedding tables that are tied output heads."""
    if isinstance(layer, nn.Embedding):
        return table_role
    return HEAD if exceptions.is_final_fc(path) else ""


def _quantized(path: str, layer: nn.Module, scheme: Scheme, exceptions: Exceptions) -> Quantized | None:
    ends = scheme.of_ends
    match layer:
        case nn.Embedding() if ends.kind == "rows":
            return QuantizedRowsEmbedding(layer, ends)
        case nn.Embedding():
            return GroupQuantizeEmbedding(layer, ends) if scheme.quantize_embedding else None
        case nn.Linear() if exceptions.is_final_fc(path):
            return LINEARS[ends.kind](layer, ends) if scheme.quantize_final_fc else None
        case nn.Linear():
            return LINEARS[scheme.kind](layer, scheme)
        case nn.Experts() if scheme.kind == "rows":
            raise UnsupportedError(f"{path}: experts cannot have ranges of rows", hint="leave out the [:N]")
        case nn.Experts() if scheme.kind in EXPERTS:  # other kinds do not quantize experts, as in mlc_llm
            return EXPERTS[scheme.kind](layer, scheme)
    return None
