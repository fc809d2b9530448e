"""Blocks of MobileNetV4 (Qin et al. 2024) and V5, on images with the channels last.

N images of H rows and W columns, C channels. Every norm is an ``RMSNorm`` over the channels, every activation GELU with
tanh. Convolutions have zeros around the image so that results have ``ceil(size / stride)`` rows and columns; where the
number of zeros is odd, there is one more after the image (TensorFlow's padding "SAME"). Parameters have timm's names.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import op
from .layers import Linear, RMSNorm
from .module import Module
from .tensor import Parameter, Tensor

EPSILON = 1e-6


class Conv2d(Module):
    """A convolution of x [N, H, W, C] by square windows; weight [out_channels, in_channels / groups, kernel, kernel].

    stride, kernel: of rows and of columns. bias: [out_channels].
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel: int, stride: int = 1, groups: int = 1, bias: bool = False
    ):
        self.kernel, self.stride, self.groups = kernel, stride, groups
        self.weight = Parameter((out_channels, in_channels // groups, kernel, kernel))
        self.bias = Parameter((out_channels,)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        zeros = [self._zeros(size) for size in x.shape[1:3]]
        if any(zeros):
            x = op.pad(x, [0, 0, *(n for total in zeros for n in (total // 2, total - total // 2)), 0, 0])
        return op.conv2d(x, self.weight, self.bias, self.stride, groups=self.groups, data_layout="NHWC")

    def _zeros(self, size: object) -> int:
        """How many zeros an axis of ``size`` elements has around it."""
        assert isinstance(size, int)
        return max((-(-size // self.stride) - 1) * self.stride + self.kernel - size, 0)


def depthwise(channels: int, kernel: int, stride: int = 1) -> Conv2d:
    """A convolution of each channel by itself."""
    return Conv2d(channels, channels, kernel, stride, groups=channels)


class ConvNorm(Module):
    """A convolution, a norm, and an activation where ``activated``."""

    def __init__(self, conv: Module, channels: int, activated: bool):
        self.conv, self.bn = conv, RMSNorm(channels, EPSILON)
        self.activated = activated

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn(self.conv(x))
        return gelu(y) if self.activated else y


class EdgeResidual(Module):
    """A convolution to ``expansion`` times the channels and a product to ``out_channels``; x is added where it fits."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int, stride: int, expansion: int):
        inner = in_channels * expansion
        self.has_skip = stride == 1 and in_channels == out_channels
        self.conv_exp, self.bn1 = Conv2d(in_channels, inner, kernel, stride), RMSNorm(inner, EPSILON)
        self.conv_pwl, self.bn2 = Linear(inner, out_channels, bias=False), RMSNorm(out_channels, EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv_pwl(gelu(self.bn1(self.conv_exp(x)))))
        return x + y if self.has_skip else y


class UniversalInvertedResidual(Module):
    """Products to ``expansion`` times the channels and to ``out_channels``.

    start, middle: windows of the depthwise convolutions before the products and between them, 0 for none; the last of
    these has the stride. scaled: the result has a factor for each channel. skip: x is added where it has the result's
    shape.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        expansion: int,
        start: int = 0,
        middle: int = 0,
        stride: int = 1,
        scaled: bool = True,
        skip: bool = True,
    ):
        inner = in_channels * expansion
        self.has_skip = skip and stride == 1 and in_channels == out_channels
        first = depthwise(in_channels, start, 1 if middle else stride)
        self.dw_start = ConvNorm(first, in_channels, activated=False) if start else None
        self.pw_exp = ConvNorm(Linear(in_channels, inner, bias=False), inner, activated=True)
        self.dw_mid = ConvNorm(depthwise(inner, middle, stride), inner, activated=True) if middle else None
        self.pw_proj = ConvNorm(Linear(inner, out_channels, bias=False), out_channels, activated=False)
        self.layer_scale = Scale(out_channels) if scaled else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.dw_start(x) if self.dw_start else x
        y = self.pw_exp(y)
        y = self.pw_proj(self.dw_mid(y) if self.dw_mid else y)
        y = self.layer_scale(y) if self.layer_scale else y
        return x + y if self.has_skip else y


class MobileAttention(Module):
    """``x + scale * attention(norm(x))``: queries of all heads attend to one head of keys and values.

    kv_stride: keys and values are of an image that a depthwise convolution with windows of ``kernel`` has made smaller.
    """

    def __init__(self, channels: int, heads: int, head_dim: int, kernel: int, kv_stride: int):
        self.norm = RMSNorm(channels, EPSILON)
        self.attn = MultiQueryAttention(channels, heads, head_dim, kernel, kv_stride)
        self.layer_scale = Scale(channels)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layer_scale(self.attn(self.norm(x)))


class MultiQueryAttention(Module):
    """Attention of the places of x [N, H, W, C] among each other, see ``MobileAttention``."""

    def __init__(self, channels: int, heads: int, head_dim: int, kernel: int, kv_stride: int):
        self.heads, self.head_dim = heads, head_dim
        self.query = Projected(Linear(channels, heads * head_dim, bias=False))
        self.key, self.value = (
            Projected(
                Linear(channels, head_dim, bias=False),
                depthwise(channels, kernel, kv_stride) if kv_stride > 1 else None,
                RMSNorm(channels, EPSILON) if kv_stride > 1 else None,
            )
            for _ in range(2)
        )
        self.output = Projected(Linear(heads * head_dim, channels, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        count, height, width, _ = x.shape
        q = op.reshape(self.query(x), (count, height * width * self.heads, 1, self.head_dim))
        k, v = (self._places(project(x)) for project in (self.key, self.value))
        out = op.scaled_dot_product_attention(q, k, v)
        return self.output(op.reshape(out, (count, height, width, self.heads * self.head_dim)))

    def _places(self, x: Tensor) -> Tensor:
        count, height, width, size = x.shape
        return op.reshape(x, (count, height * width, 1, size))


class Projected(Module):
    """A product, of what a convolution and a norm have made of x where they are given."""

    def __init__(self, proj: Linear, down_conv: Module | None = None, norm: Module | None = None):
        self.down_conv, self.norm, self.proj = down_conv, norm, proj

    def forward(self, x: Tensor) -> Tensor:
        x = self.down_conv(x) if self.down_conv else x
        return self.proj(self.norm(x) if self.norm else x)


class Scale(Module):
    """A factor for each channel (LayerScale, Touvron et al. 2021)."""

    def __init__(self, channels: int):
        self.gamma = Parameter((channels,))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma.astype(x.dtype)


class MultiScaleFusion(Module):
    """Images of several sizes as one of ``side`` x ``side`` places: enlarged to the first's size, joined, and averaged.

    in_channels: of all images together. The first has the most places, a multiple of each other's and of ``side``.
    """

    def __init__(self, in_channels: int, out_channels: int, side: int, expansion: int = 2):
        self.side = side
        self.ffn = UniversalInvertedResidual(in_channels, out_channels, expansion, scaled=False, skip=False)
        self.norm = RMSNorm(out_channels, EPSILON)

    def forward(self, images: Sequence[Tensor]) -> Tensor:
        height, width = images[0].shape[1:3]
        x = self.ffn(op.concat([enlarged(image, height, width) for image in images], axis=-1))
        count, channels = x.shape[0], x.shape[3]
        windows = op.reshape(x, (count, self.side, height // self.side, self.side, width // self.side, channels))
        return self.norm(op.mean(windows, axis=(2, 4)))


def enlarged(x: Tensor, height: int, width: int) -> Tensor:
    """x [N, H, W, C] with each place repeated, to ``height`` x ``width`` places, multiples of H and W."""
    count, rows, columns, channels = x.shape
    if (rows, columns) == (height, width):
        return x
    places = op.reshape(x, (count, rows, 1, columns, 1, channels))
    repeated = op.broadcast_to(places, (count, rows, height // rows, columns, width // columns, channels))
    return op.reshape(repeated, (count, height, width, channels))


def gelu(x: Tensor) -> Tensor:
    return op.gelu(x, "tanh")
