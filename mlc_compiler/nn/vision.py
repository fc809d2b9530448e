"""Vision transformers: map the patches of an image to one vector per patch (Dosovitskiy et al. 2021).

N images, C channels, S patches of an image (plus an optional class token), D elements of a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from ..relax import ops
from ..relax.nodes import constant
from . import op
from .layers import Embedding, Linear
from .module import Module, ModuleList
from .tensor import Parameter, Tensor, apply

HIDDEN = -1e4  # added to masked scores: finite in float16, and its exponential is 0


class PatchEmbedding(Linear):
    """Embed patches of pixels [N, C, H, W] as vectors [N, S, D], row by row; a convolution with stride = kernel size.

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
    """Patch embedding with learned positions and an optional class token before the patches: [N, C, H, W] -> [N, S, D].

    position_embedding: [S, D]. patches: number of patches per image.
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
    """Bidirectional attention of x [N, S, D] among all tokens of an image.

    rotation: cosines and sines, float32 [N S, R/2], that rotate queries and keys. mask: [1, 1, S, S], which
    is added to scores.
    """

    def __init__(self, hidden_size: int, heads: int, bias: bool = True):
        self.heads, self.head_dim = heads, hidden_size // heads
        self.qkv_proj = Linear(hidden_size, 3 * hidden_size, bias)
        self.out_proj = Linear(hidden_size, hidden_size, bias)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor] | None = None, mask: Tensor | None = None) -> Tensor:
        count, length, size = x.shape
        qkv = op.reshape(self.qkv_proj(x), (count * length, 3 * self.heads, self.head_dim))
        q, k, v = op.split(qkv, 3, axis=1)
        if rotation:
            q, k = (apply(ops.rotary_embedding, part, *rotation) for part in (q, k))
        q, k, v = (op.reshape(part, (count, length, self.heads, self.head_dim)) for part in (q, k, v))
        out = op.scaled_dot_product_attention(q, k, v, mask)
        return self.out_proj(op.reshape(out, (count, length, size)))


class VisionLayer(Module):
    """A pre-norm transformer layer. norm: creates a norm; bias: whether attention has biases; see ``FullAttention``."""

    def __init__(self, hidden_size: int, heads: int, mlp: Module, norm: Callable[[], Module], bias: bool = True):
        self.layer_norm1 = norm()
        self.self_attn = FullAttention(hidden_size, heads, bias)
        self.layer_norm2 = norm()
        self.mlp = mlp

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor] | None = None, mask: Tensor | None = None) -> Tensor:
        x = x + self.self_attn(self.layer_norm1(x), rotation, mask)
        return x + self.mlp(self.layer_norm2(x))


class VisionTransformer(Module):
    """Vision transformer: pixels [N, C, H, W] -> [N, S, D]; optional norms before the first, after the last layer."""

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


class PatchTransformer(Module):
    """A vision transformer for images of any size, with rotary or learned positions (Qwen2-VL, section 2.1).

    pixels: [T, M, K], the M patches of each of T tokens. positions: int32 [T, M, 2], their rows and columns.
    Returns [1, T, M, D]. inv_freq: float32 [R/4], applied to rows for the first half of the pairs and to columns for
    the rest, or [2, R/4] where these differ; None for no rotation.
    window: unless 0, a patch sees only its square of this many rows and columns, except in ``full_layers``.
    pos_embed: maps positions [T M, 2] to position embeddings [T M, D]. post_norm: applied after the last layer.
    """

    def __init__(
        self,
        patch: Module,
        layers: Sequence[Module],
        inv_freq: np.ndarray | None,
        window: int = 0,
        full_layers: Collection[int] = (),
        pos_embed: Module | None = None,
        post_norm: Module | None = None,
    ):
        self.patch_embed, self.pos_embed = patch, pos_embed
        self.layers = ModuleList(layers)
        self.post_layernorm = post_norm
        self.inv_freq, self.window, self.full_layers = inv_freq, window, frozenset(full_layers)

    def forward(self, pixels: Tensor, positions: Tensor) -> Tensor:
        x = self.results(pixels, positions, ())[-1]
        return self.post_layernorm(x) if self.post_layernorm else x

    def results(self, pixels: Tensor, positions: Tensor, tapped: Collection[int]) -> list[Tensor]:
        """The results [1, T, M, D] of the layers in ``tapped`` and of the last layer."""
        tokens, patches, size = pixels.shape
        places = op.reshape(positions, (tokens * patches, 2))
        x = self.patch_embed(op.reshape(pixels, (1, tokens * patches, size)))
        x = x + self.pos_embed(places).astype(x.dtype) if self.pos_embed else x
        rotation, mask = self._rotation(places), self._mask(places, x.dtype) if self.window else None
        results = []
        for i, layer in enumerate(self.layers):
            x = layer(x, rotation, None if i in self.full_layers else mask)
            results += [x] if i in tapped else []
        return [op.reshape(result, (1, tokens, patches, x.shape[2])) for result in (*results, x)]

    def _rotation(self, positions: Tensor) -> tuple[Tensor, Tensor] | None:
        if self.inv_freq is None:
            return None
        both = np.broadcast_to(np.asarray(self.inv_freq, np.float32), (2, self.inv_freq.shape[-1]))
        axes = op.split(positions.astype("float32"), 2, axis=1)
        angles = op.concat([x * Tensor(constant(f[None, :])) for x, f in zip(axes, both, strict=True)], dim=1)
        return op.cos(angles), op.sin(angles)

    def _mask(self, positions: Tensor, dtype: str) -> Tensor:
        """The mask [1, 1, S, S]: 0 where two patches are in the same window, else ``HIDDEN``."""
        length = positions.shape[0]
        rows, columns = op.split(op.floor(positions.astype("float32") / float(self.window)), 2, axis=1)

        def differ(x: Tensor) -> Tensor:
            return op.not_equal(op.reshape(x, (1, 1, length, 1)), op.reshape(x, (1, 1, 1, length)))

        hidden = op.logical_or(differ(rows), differ(columns))
        return hidden.astype(dtype) * HIDDEN


class DeepPatchTransformer(PatchTransformer):
    """A PatchTransformer with learned positions that also returns intermediate results (DeepStack, Meng et al. 2024).

    Returns the results of the ``tapped`` layers and of the last layer, [1, T, M, D] each.
    """

    def __init__(
        self, patch: Linear, layers: Sequence[Module], inv_freq: np.ndarray, pos_embed: Module, tapped: Collection[int]
    ):
        super().__init__(patch, layers, inv_freq, pos_embed=pos_embed)
        self.tapped = frozenset(tapped)

    def forward(self, pixels: Tensor, positions: Tensor) -> list[Tensor]:  # type: ignore[override]
        return self.results(pixels, positions, self.tapped)


class GridPositions(Embedding):
    """Learned position embeddings on a square grid, resampled to the grid of an image; weight [side * side, D].

    Bilinear interpolation with aligned corners. The image has at least two rows and columns.
    """

    def __init__(self, side: int, hidden_size: int):
        super().__init__(side * side, hidden_size)
        self.side = side

    def forward(self, places: Tensor) -> Tensor:
        """Interpolate at places, integers [S, 2]: row and column of every patch of an image. Returns float32 [S, D]."""
        points = places.astype("float32")
        points = points * float(self.side - 1) / op.max(points, axis=0, keepdims=True)
        low = op.floor(points)
        high, part = op.minimum(low + 1.0, float(self.side - 1)), points - low
        total = None
        for rows, row_share in self._corners(low, high, part, 0):
            for columns, column_share in self._corners(low, high, part, 1):
                index = op.reshape(rows * float(self.side) + columns, (places.shape[0],)).astype("int32")
                vectors = super().forward(index).astype("float32") * (row_share * column_share)
                total = vectors if total is None else total + vectors
        assert total is not None
        return total

    def _corners(self, low: Tensor, high: Tensor, part: Tensor, axis: int) -> list[tuple[Tensor, Tensor]]:
        """The lower and the upper coordinate along an axis, each with its interpolation weight, [S, 1]."""
        below, above, share = (op.split(x, 2, axis=1)[axis] for x in (low, high, part))
        return [(below, 1.0 - share), (above, share)]


class ResampledPositions(Module):
    """Learned position embeddings on a square grid, resampled to the grid of an image; weight [side * side, D].

    Bilinear interpolation with aligned edges, antialiased where the image has fewer rows or
    columns than the grid, like PyTorch's ``interpolate(mode="bilinear", antialias=True)``.
    """

    def __init__(self, side: int, hidden_size: int):
        self.weight = Parameter((side * side, hidden_size))
        self.side = side

    def forward(self, places: Tensor) -> Tensor:
        """Interpolate at places, integers [S, 2]: row and column of every patch of an image. Returns float32 [S, D]."""
        points = places.astype("float32")
        step = float(self.side) / (op.max(points, axis=0, keepdims=True) + 1.0)
        centres, reach = (points + 0.5) * step, op.maximum(step, 1.0)
        rows, columns = (
            self._shares(*parts) for parts in zip(op.split(centres, 2, axis=1), op.split(reach, 2, axis=1), strict=True)
        )
        length = places.shape[0]
        shares = op.reshape(rows, (length, self.side, 1)) * op.reshape(columns, (length, 1, self.side))
        return op.matmul(op.reshape(shares, (length, self.side**2)), self.weight.astype("float32"))

    def _shares(self, centres: Tensor, reach: Tensor) -> Tensor:
        """Interpolation weights of the grid's rows (or columns): a normalized triangle filter, float32 [S, side]."""
        middles = Tensor(constant(np.arange(self.side, dtype=np.float32)[None, :] + 0.5))
        heights = op.maximum(1.0 - op.abs(middles - centres) / reach, 0.0)
        return heights / op.sum(heights, axis=1, keepdims=True)


class AxialPositions(Embedding):
    """The sum of a learned embedding of the column and one of the row; weight [2 * count, E], columns first."""

    def __init__(self, count: int, hidden_size: int):
        super().__init__(2 * count, hidden_size)
        self.count = count

    def forward(self, places: Tensor) -> Tensor:
        """Embed places, int32 [S, 2] (column, row) -> [S, E]."""
        column, row = (op.reshape(x, (places.shape[0],)) for x in op.split(places, 2, axis=1))
        return super().forward(column) + super().forward(row + self.count)
