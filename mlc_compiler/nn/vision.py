"""Vision transformers: patches of an image in, one vector for each patch out (Dosovitskiy et al. 2021).

N images, C channels, S patches of an image and perhaps a class token, D elements of a vector.
"""

from __future__ import annotations

from collections.abc import Callable

from . import op
from .feed_forward import MLP, Activation
from .layers import LayerNorm, Linear
from .module import Module, ModuleList
from .tensor import Parameter, Tensor


class PatchEmbedding(Linear):
    """Patches of pixels [N, C, H, W] as vectors [N, S, D], row by row; a convolution whose windows do not overlap.

    weight: [D, C * patch_size ** 2]. H and W are multiples of patch_size.
    """

    def __init__(self, channels: int, patch_size: int, hidden_size: int, bias: bool = True):
        super().__init__(channels * patch_size**2, hidden_size, bias)
        self.patch_size = patch_size

    def forward(self, pixels: Tensor) -> Tensor:
        count, channels, height, width = pixels.shape
        p = self.patch_size
        assert isinstance(height, int) and isinstance(width, int)
        windows = op.reshape(pixels, (count, channels, height // p, p, width // p, p))
        patches = op.permute_dims(windows, (0, 2, 4, 1, 3, 5))
        return super().forward(op.reshape(patches, (count, (height // p) * (width // p), self.in_features)))


class ImageEmbedding(Module):
    """Patches with learned positions, pixels [N, C, H, W] -> [N, S, D]; with a class token before the patches or not.

    position_embedding: [S, D]. patches: of an image.
    """

    def __init__(self, patch: PatchEmbedding, patches: int, hidden_size: int, class_token: bool):
        self.patch_embedding = patch
        self.class_embedding = Parameter((hidden_size,)) if class_token else None
        self.position_embedding = Parameter((patches + class_token, hidden_size))

    def forward(self, pixels: Tensor) -> Tensor:
        x = self.patch_embedding(pixels)
        if self.class_embedding is not None:
            first = op.reshape(self.class_embedding.astype(x.dtype), (1, 1, x.shape[2]))
            x = op.concat([op.broadcast_to(first, (x.shape[0], 1, x.shape[2])), x], dim=1)
        return x + self.position_embedding.astype(x.dtype)


class FullAttention(Module):
    """Attention of x [N, S, D] among all tokens of an image, in both directions."""

    def __init__(self, hidden_size: int, heads: int, bias: bool = True):
        self.heads, self.head_dim = heads, hidden_size // heads
        self.qkv_proj = Linear(hidden_size, 3 * hidden_size, bias)
        self.out_proj = Linear(hidden_size, hidden_size, bias)

    def forward(self, x: Tensor) -> Tensor:
        count, length, size = x.shape
        qkv = op.reshape(self.qkv_proj(x), (count, length, 3 * self.heads, self.head_dim))
        q, k, v = op.split(qkv, 3, axis=2)
        out = op.scaled_dot_product_attention(q, k, v)
        return self.out_proj(op.reshape(out, (count, length, size)))


class VisionLayer(Module):
    """Layer norms before attention and feed-forward part."""

    def __init__(self, hidden_size: int, heads: int, intermediate_size: int, activation: Activation, epsilon: float):
        self.layer_norm1 = LayerNorm(hidden_size, epsilon)
        self.self_attn = FullAttention(hidden_size, heads)
        self.layer_norm2 = LayerNorm(hidden_size, epsilon)
        self.mlp = MLP(hidden_size, intermediate_size, activation, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.layer_norm1(x))
        return x + self.mlp(self.layer_norm2(x))


class VisionTransformer(Module):
    """Pixels [N, C, H, W] -> [N, S, D]; norms before the first layer and after the last one where they are given."""

    def __init__(
        self,
        embeddings: Module,
        layer: Callable[[], Module],
        num_layers: int,
        pre_norm: Module | None = None,
        post_norm: Module | None = None,
    ):
        self.embeddings = embeddings
        self.pre_layrnorm = pre_norm  # spelled as in CLIP's checkpoints
        self.layers = ModuleList([layer() for _ in range(num_layers)])
        self.post_layernorm = post_norm

    def forward(self, pixels: Tensor) -> Tensor:
        x = self.embeddings(pixels)
        x = self.pre_layrnorm(x) if self.pre_layrnorm else x
        for layer in self.layers:
            x = layer(x)
        return self.post_layernorm(x) if self.post_layernorm else x
