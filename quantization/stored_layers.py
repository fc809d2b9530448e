"""Layers with weights in other tools' formats: block-scaled fp8, AWQ or FasterTransformer's."""

from __future__ import annotations

from mlc_compiler import nn
from mlc_compiler.nn import Parameter, Tensor, op
from mlc_compiler.nn.layers import with_expert_bias
from mlc_errors import UnsupportedError
from quantization.codecs import codec
from quantization.fp8 import largest_code
from quantization.schemes import Scheme


def rounded_to_float8(x: Tensor, scale: Tensor, scheme: Scheme) -> Tensor:
    """x rounded to the scheme's float8 in units of ``scale``, and saturated; computed in float32.

    x: [..., K]; scale: float32, any shape that is broadcast to x's.
    """
    top = largest_code(scheme)
    codes = op.clip(x.astype("float32") / scale, -top, top).astype(scheme.storage_dtype)
    return (codes.astype("float32") * scale).astype(x.dtype)


class StoredWeight(nn.Module):
    """The tensors of the format under its own names, with their dequantization."""

    weight: Parameter
    weight_scale_inv: Parameter
    qweight: Parameter
    qzeros: Parameter
    scales: Parameter
    activation_scale: Parameter
    q_weight: Parameter
    q_scale: Parameter

    def __init__(self, layer: nn.Linear | nn.Experts, scheme: Scheme):
        self.scheme, self.layout = scheme, scheme.layout
        for name, (shape, dtype) in codec(scheme).tensors(layer.weight.shape, scheme, scheme.layout).items():
            setattr(self, name, Parameter(shape, dtype))
        self.bias = layer.bias

    def dequantized(self, dtype: str) -> Tensor:
        """The dequantized weight [..., N, K]."""
        if self.scheme.kind == "awq":
            return op.dequantize_awq(self.qweight, self.qzeros, self.scales, group=self.scheme.group, dtype=dtype)
        if self.scheme.kind == "ft":
            return op.dequantize_ft(self.q_weight, self.q_scale, dtype=dtype)
        rows, columns = self.scheme.rows, self.scheme.group
        return op.dequantize_blocks(self.weight, self.weight_scale_inv, rows=rows, columns=columns, dtype=dtype)

    def rounded(self, x: Tensor) -> Tensor:
        """The input x [..., K] rounded with the scales of its blocks, if the format has them."""
        if not self.scheme.float8_inputs:
            return x
        scales = op.repeat(self.activation_scale, self.scheme.group, axis=0)
        return rounded_to_float8(x, op.strided_slice(scales, [0], [0], [x.shape[-1]]), self.scheme)


class StoredLinear(StoredWeight):
    """``nn.Linear`` with its weight in the format; a bias is not quantized."""

    def forward(self, x: Tensor) -> Tensor:
        return op.linear(self.rounded(x), self.dequantized(x.dtype), self.bias)


class StoredExperts(StoredWeight):
    """``nn.Experts`` with its weight in the format."""

    def __init__(self, experts: nn.Experts, scheme: Scheme):
        if scheme.float8_inputs:
            raise UnsupportedError(
                f"{scheme.name} has no form for layers of experts",
                hint="fp8_e4m3fn_bf16_block_scale leaves inputs unrounded",
            )
        super().__init__(experts, scheme)
        self.num_experts = experts.num_experts

    def forward(self, x: Tensor, experts: Tensor, rows: Tensor | None = None) -> Tensor:
        y = op.expert_linear(x, self.dequantized(x.dtype), experts, rows)
        return with_expert_bias(y, self.bias, experts)
