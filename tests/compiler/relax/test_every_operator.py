"""Every operator of the graph level against numpy: interpreted with known sizes, compiled with symbolic ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest

from mlc_compiler import Library, build
from mlc_compiler.ir.module import IRModule
from mlc_compiler.relax.ops import OPERATORS
from quantization.awq import unpack
from quantization.faster_transformer import out_of_tiles, unpacked
from tests.compiler.relax import paged, recurrences
from tests.compiler.relax.check_op import arrays_in, check_op, graph_of
from tests.compiler.sampling_reference import filtered

RNG = np.random.default_rng(12)
N, M = 3, 5  # these sizes become symbolic


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


X, Y, ROW = normal(N, M, 7), normal(N, M, 7), normal(7)
POSITIVE = np.abs(X) + np.float32(0.5)
INTS, SMALL = RNG.integers(-9, 9, (N, M)).astype("int32"), RNG.integers(1, 5, (N, M)).astype("int32")
TRUTH, OTHER = X > 0, Y > 0
PLACES = RNG.integers(0, M, (N, 2)).astype("int32")
EXPERTS = normal(4, 6, 7)
SEEN = np.arange(M)[:, None] > np.arange(4)  # the first query sees nothing
CHOSEN, TIED, BIAS = np.array([3, 0, 3, 2, 0], "int32"), RNG.integers(0, 3, (N, 9)).astype("float32"), normal(9)


@dataclass(frozen=True)
class Case:
    """An operator, its arguments, and the result computed by numpy."""

    args: tuple[Any, ...]
    reference: Callable[..., Any]
    attrs: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-6


def scattered(data: np.ndarray, places: np.ndarray, updates: np.ndarray) -> np.ndarray:
    result = data.copy()
    for row, n in np.ndindex(places.shape):
        result[row, places[row, n]] *= updates[row, n]
    return result


def scattered_parts(data: np.ndarray, places: np.ndarray, updates: np.ndarray) -> np.ndarray:
    result = data.copy()
    for at in np.ndindex(places.shape[:-1]):
        result[tuple(places[at])] = updates[at]
    return result


def grid_sampled(images: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Bilinear interpolation between images that are surrounded by zeros."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    size = np.array(images.shape[:1:-1])
    at = np.clip(((grid + 1) * size - 1) / 2 + 1, 0, size + 1)
    low = np.minimum(at.astype(int), size)
    (x, y), (right, down) = np.moveaxis(low, -1, 0), np.moveaxis(at - low, -1, 0)
    n = np.arange(len(grid))[:, None, None]
    corners = [(padded[n, :, y + d, x + r], (down if d else 1 - down) * (right if r else 1 - right))
               for d in (0, 1) for r in (0, 1)]  # fmt: skip
    return np.moveaxis(sum(value * weight[..., None] for value, weight in corners), -1, 1).astype("float32")


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def gelu(x: np.ndarray) -> np.ndarray:
    return np.array([v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x.ravel()], "f4").reshape(x.shape)


def erf(x: np.ndarray) -> np.ndarray:
    return np.array([math.erf(v) for v in x.ravel()], "f4").reshape(x.shape)


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.tanh(np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x**3)))


def norm(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + np.float32(1e-5))


def group_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    grouped = norm(x.reshape(N, M, 2, 3), (1, 3)).reshape(x.shape)
    return grouped * gamma + beta


def windows_of(
    x: np.ndarray,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    fill: float,
) -> np.ndarray:
    """The windows [N, C, H, W, *kernel] of images with (top, left, bottom, right) of padding."""
    top, left, bottom, right = padding
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    every = np.lib.stride_tricks.sliding_window_view(x, reach, (2, 3))
    return every[:, :, :: strides[0], :: strides[1], :: dilation[0], :: dilation[1]]


def convolved(
    x: np.ndarray, w: np.ndarray, strides: tuple[int, ...], padding: tuple[int, ...], dilation: Any, groups: int
) -> np.ndarray:
    found = windows_of(x, w.shape[2:], strides, padding, dilation, 0)
    parts = zip(np.split(found, groups, 1), np.split(w, groups), strict=True)
    return np.concatenate([np.einsum("nchwij,ocij->nohw", a, b) for a, b in parts], 1)


def volumes(x: np.ndarray, kernel: tuple[int, ...]) -> np.ndarray:
    """The windows [N, C, D, H, W, volume] of volumes at strides 1, their elements flattened."""
    every = np.lib.stride_tricks.sliding_window_view(x, kernel, (2, 3, 4))
    return every.reshape(*every.shape[:5], -1)


def first_best(x: np.ndarray, kernel: tuple[int, ...]) -> np.ndarray:
    """The places in the flattened volume of the first maxima of windows at strides 1."""
    inside = np.unravel_index(volumes(x, kernel).argmax(-1), kernel)
    corner = np.indices(inside[0].shape)[2:]
    return np.ravel_multi_index([c + i for c, i in zip(corner, inside, strict=True)], x.shape[2:])


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def dequantize(q: np.ndarray, scale: np.ndarray) -> np.ndarray:
    codes = (q[..., None] >> (4 * np.arange(8, dtype=np.uint32))) & 15
    return ((codes.reshape(N, 32).astype("f4") - 7) * np.repeat(scale, 16, 1)).astype("f4")


def dequantize_blocks(q: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return q * np.repeat(np.repeat(scale, 3, axis=0), 4, axis=1)[: q.shape[0], : q.shape[1]]


def dequantize_awq(q: np.ndarray, zeros: np.ndarray, scale: np.ndarray) -> np.ndarray:
    codes, zero_points = (unpack(words).astype("f4") for words in (q, zeros))
    return ((codes - np.repeat(zero_points, 3, axis=0)) * np.repeat(scale, 3, axis=0)).T


def dequantize_ft(q: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return unpacked(out_of_tiles(q)) * scale.T


def expert_linear(x: np.ndarray, w: np.ndarray, experts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return np.einsum("rk,rnk->rn", x[rows], w[experts])


def group_by_expert(experts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    order = experts.ravel().argsort(kind="stable")
    places = order.argsort().reshape(experts.shape).astype("int32")
    return places, experts.ravel()[order], (order // experts.shape[1]).astype("int32")


def route(logits: np.ndarray, correction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Choose two of nine experts, from the two groups of three with the greatest sums of their two best scores."""
    scores = 1 / (1 + np.exp(-logits))
    chosen_by = (scores + correction).reshape(N, 3, 3)
    worst = np.sort(chosen_by, -1)[..., 1:].sum(-1).argmin(1)
    chosen_by[np.arange(N), worst] = -np.inf
    experts = np.argsort(-chosen_by.reshape(N, 9), 1, kind="stable")[:, :2].astype("int32")
    weights = np.take_along_axis(scores, experts, 1)
    return (1.5 * weights / weights.sum(1, keepdims=True)).astype("f4"), experts


def expert_sum(y: np.ndarray, weights: np.ndarray, places: np.ndarray) -> np.ndarray:
    return (weights[..., None] * y[places]).sum(1)


def best(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(-x, axis=1, kind="stable")[:, :2]
    return np.take_along_axis(x, order, 1), order.astype("int32")


def unary(reference: Callable[[np.ndarray], np.ndarray], x: np.ndarray = X) -> Case:
    return Case((x,), reference, tolerance=2e-6)


BATCH = paged.random_batch(paged.Sizes())
CODES = paged.random_batch(paged.Sizes(kv_dtype="int8"))
SCALES = [np.nan_to_num(scales) for scales in CODES.scales.values()]
ANGLES = [np.cos(normal(N, 4)), np.sin(normal(N, 4))]
MATRICES, VALUES = normal(4, 2, 4, 6, 10), normal(8, 4, 10)
KEYS, ROWS = normal(2, 8, 2, 6) / 2, normal(5, 8, 4, 6) / 2
GATES = normal(2, 8, 4) / 2
SSD = {"groups": 2, "dt_first": 2, "dt_limits": (0.2, 1.5)}
ATTENTION = {"heads": 4, "scale": 0.4, "names": ("cos", "sin"), "window": 4}


def turned(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    return paged.rotated(x, cos[:, None], sin[:, None], interleaved=False).astype("f4")


def warm_softmax(logits: np.ndarray, temperature: np.ndarray) -> np.ndarray:
    rows = [softmax(x / t) if t else np.eye(len(x))[x.argmax()] for x, t in zip(logits, temperature, strict=True)]
    return np.array(rows, "f4")


def drawn(probs: np.ndarray, top_p: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Top-p sampling by sorting: among the fewest most probable tokens with at least ``top_p``, in order of ids."""
    tokens = []
    for p, share, u in zip(probs, top_p, uniform, strict=True):
        order = np.argsort(-p)
        count = np.searchsorted(np.cumsum(p[order]), share) + 1
        kept = np.sort(order[:count])
        tokens.append(kept[np.searchsorted(np.cumsum(p[kept]), u * p[kept].sum(), side="right")])
    return np.array(tokens, "int32")


def kept(probs: np.ndarray, *settings: np.ndarray) -> np.ndarray:
    return np.array([filtered(p, *rows) for p, *rows in zip(probs, *settings, strict=True)], "f4")


def penalized(
    logits: np.ndarray, ids: np.ndarray, counts: np.ndarray, bias: np.ndarray, *settings: np.ndarray
) -> np.ndarray:
    """Logits after biases and penalties, by the formulas, token by token."""
    result = logits.copy()
    for row, (presence, frequency, repetition) in zip(range(len(logits)), zip(*settings, strict=True), strict=True):
        for token, count, added in zip(ids[row], counts[row], bias[row], strict=True):
            if 0 <= token < logits.shape[1]:
                x = result[row, token] + added
                if count >= 0:
                    x = x / repetition if x > 0 else x * repetition
                result[row, token] = x - (presence + count * frequency if count > 0 else 0)
    return result


def both(reference: Callable[..., np.ndarray], x: np.ndarray = X, y: np.ndarray = Y) -> Case:
    return Case((x, y), reference)


CASES: dict[str, Case] = {
    **{name: both(getattr(np, name)) for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum")},
    **{
        name: both(getattr(np, name))
        for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
    },
    **{f"logical_{name}": both(getattr(np, f"logical_{name}"), TRUTH, OTHER) for name in ("and", "or", "xor")},
    **{name: both(getattr(np, name), INTS, SMALL) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    **{name: both(getattr(np, name), INTS, SMALL) for name in ("left_shift", "right_shift")},
    "floor_divide": both(np.floor_divide, INTS, SMALL),
    "floor_mod": both(np.mod, INTS, SMALL),
    "power": Case((POSITIVE, ROW), np.power, tolerance=1e-5),
    **{name: unary(getattr(np, name)) for name in ("exp", "tanh", "sin", "cos", "negative", "abs", "floor", "ceil")},
    **{name: unary(getattr(np, name)) for name in ("tan", "sinh", "cosh")},
    "asin": Case((X / 9,), np.arcsin),
    "acos": Case((X / 9,), np.arccos),
    "atan": unary(np.arctan),
    "asinh": unary(np.arcsinh),
    "acosh": Case((POSITIVE + 1,), np.arccosh),
    "atanh": Case((X / 9,), np.arctanh),
    "atan2": Case((X, Y), np.arctan2),
    "image.grid_sample": Case((X[None], Y[:, :, :6].reshape(1, N, -1, 2)), grid_sampled, tolerance=1e-5),
    **{name: unary(getattr(np, name)) for name in ("square", "sign", "round")},
    "log": unary(np.log, POSITIVE),
    "sqrt": unary(np.sqrt, POSITIVE),
    "rsqrt": unary(lambda x: 1 / np.sqrt(x), POSITIVE),
    "sigmoid": unary(sigmoid),
    "erf": unary(erf),
    "logical_not": unary(np.logical_not, TRUTH),
    "nn.relu": unary(lambda x: np.maximum(x, 0)),
    "nn.relu6": unary(lambda x: np.clip(x, 0, 6), X * 5),
    "nn.leakyrelu": Case((X,), lambda x: np.where(x > 0, x, x * np.float32(0.2)), {"alpha": 0.2}),
    "nn.silu": unary(lambda x: x * sigmoid(x)),
    "nn.gelu": unary(gelu),
    "nn.gelu_tanh": unary(gelu_tanh),
    "nn.softplus": Case((X * 9,), lambda x: np.logaddexp(x.astype("f8") * 2, 0).astype("f4") / 2, {"beta": 2.0}),
    "astype": Case((X * 9,), lambda x: x.astype("int32"), {"dtype": "int32"}),
    "where": Case((TRUTH, X, Y), np.where),
    "clip": Case((X,), lambda x: x.clip(-0.5, 0.25), {"min": -0.5, "max": 0.25}),
    "linear": Case((X, normal(11, 7), normal(11)), lambda x, w, b: x @ w.T + b, tolerance=1e-5),
    "matmul": Case((X, normal(7, 9)), np.matmul, tolerance=1e-5),
    "dequantize": Case(
        (RNG.integers(0, 1 << 32, (N, 4), "uint32"), np.abs(normal(N, 2))),
        dequantize,
        {"bits": 4, "group": 16, "k": 32, "dtype": "float32"},
    ),
    "dequantize_blocks": Case(
        (normal(7, 10), normal(3, 3)), dequantize_blocks, {"rows": 3, "columns": 4, "dtype": "float32"}
    ),
    "dequantize_awq": Case(
        (RNG.integers(0, 1 << 32, (6, 2), "uint32"), RNG.integers(0, 1 << 32, (2, 2), "uint32"), normal(2, 16)),
        dequantize_awq,
        {"group": 3, "dtype": "float32"},
    ),
    "dequantize_ft": Case(
        (RNG.integers(-128, 128, (128, 96), "int8"), normal(1, 192)), dequantize_ft, {"dtype": "float32"}
    ),
    "reshape": Case((X, (-1, 7)), lambda x, _: x.reshape(-1, 7)),
    "permute_dims": Case((X,), lambda x: x.transpose(2, 0, 1), {"axes": (2, 0, 1)}),
    "expand_dims": Case((X,), lambda x: x[:, None], {"axis": 1}),
    "squeeze": Case((X[:, None],), lambda x: x[:, 0], {"axis": 1}),
    "broadcast_to": Case((ROW, (2, 9, 7)), np.broadcast_to),
    "split": Case((X,), lambda x: (x[..., :2], x[..., 2:6], x[..., 6:]), {"indices_or_sections": (2, 6), "axis": -1}),
    "concat": Case(([X, normal(N, M, 2)],), lambda parts: np.concatenate(parts, 2), {"axis": 2}),
    "take": Case((X, PLACES), lambda x, i: x.take(i, 1), {"axis": 1}),
    "strided_slice": Case((X, (2,), (1,), (6,), (2,)), lambda x, *_: x[:, :, 1:6:2]),
    "triu": Case((X,), lambda x: np.triu(x, 1), {"k": 1}),
    "tril": Case((X,), lambda x: np.tril(x, -1), {"k": -1}),
    "repeat": Case((X,), lambda x: np.repeat(x, 3, 1), {"repeats": 3, "axis": 1}),
    "tile": Case((X,), lambda x: np.tile(x, (2, 1, 3, 2)), {"repeats": (2, 1, 3, 2)}),
    "flip": Case((X,), lambda x: np.flip(x, 1), {"axis": 1}),
    "stack": Case(([X, Y, X],), lambda parts: np.stack(parts, -1), {"axis": -1}),
    "nn.pad": Case(
        (X,),
        lambda x: np.pad(x, ((0, 0), (2, 1), (0, 4)), constant_values=2),
        {
            "pad_width": (0, 0, 2, 1, 0, 4),
            "pad_value": 2.0,
        },
    ),
    "gather_elements": Case((INTS, PLACES), lambda x, i: np.take_along_axis(x, i, 1), {"axis": 1}),
    "scatter_elements": Case((INTS, PLACES, SMALL[:, :2].copy()), scattered, {"axis": 1, "reduction": "mul"}),
    "scatter_nd": Case((X, np.stack([PLACES[:, :1] % N, PLACES[:, 1:]], -1), Y[:, :1]), scattered_parts),
    "nn.expert_linear": Case((X[0, :4].copy(), EXPERTS, CHOSEN, CHOSEN[::-1].copy()), expert_linear, tolerance=1e-5),
    "nn.expert_sum": Case((X[0], np.abs(Y[0, :N, :2]), PLACES), expert_sum),
    "nn.route": Case(
        (TIED, BIAS),
        route,
        {"k": 2, "score": "sigmoid", "renormalize": True, "scale": 1.5, "groups": 3, "kept_groups": 2, "group_best": 2},
    ),
    "nn.group_by_expert": Case((PLACES,), group_by_expert, {"num_experts": M}),
    "nn.rms_norm": Case((X, ROW), lambda x, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-5)) * w),
    "nn.layer_norm": Case((X, ROW, ROW), lambda x, w, b: norm(x, (-1,)) * w + b, tolerance=1e-5),
    "nn.group_norm": Case(
        (X[..., :6].copy(), ROW[:6], ROW[1:].copy()),
        group_norm,
        {"num_groups": 2, "channel_axis": 2, "axes": (1,)},
        1e-5,
    ),
    "nn.conv1d": Case(
        (normal(N, 4, M), normal(6, 2, 3)),
        lambda x, w: convolved(x[:, :, None], w[:, :, None], (1, 2), (0, 2, 0, 1), (1, 1), 2)[:, :, 0],
        {"strides": 2, "padding": (2, 1), "groups": 2},
        1e-5,
    ),
    "nn.conv2d": Case(
        (normal(N, 4, M, 9), normal(6, 4, 2, 3)),
        lambda x, w: convolved(x, w, (1, 3), (1, 2, 1, 2), (2, 1), 1),
        {"strides": (1, 3), "padding": (1, 2), "dilation": (2, 1)},
        1e-5,
    ),
    "nn.conv3d": Case(
        (normal(N, 2, M, 4, 6), normal(3, 2, 1, 2, 2)),
        lambda x, w: np.stack([convolved(x[:, :, i], w[:, :, 0], (2, 2), (0,) * 4, (1, 1), 1) for i in range(M)], 2),
        {"strides": (1, 2, 2)},
        1e-5,
    ),
    "nn.max_pool2d": Case(
        (normal(2, 3, 6, 9),),
        lambda x: np.nanmax(windows_of(x, (3, 2), (2, 2), (1, 0, 2, 1), (1, 1), np.nan), (-2, -1)),
        {"pool_size": (3, 2), "strides": 2, "padding": (1, 0), "ceil_mode": True},
    ),
    "nn.avg_pool2d": Case(
        (normal(N, 3, M, 8),),
        lambda x: np.nanmean(windows_of(x, (3, 2), (1, 2), (1, 1, 1, 1), (1, 1), np.nan), (-2, -1)),
        {"pool_size": (3, 2), "strides": (1, 2), "padding": 1},
    ),
    "nn.max_pool1d": Case(
        (normal(N, 3, M),),
        lambda x: windows_of(x[:, :, None], (1, 2), (1, 2), (0, 1, 0, 1), (1, 1), -np.inf).max((-2, -1))[:, :, 0],
        {"pool_size": 2, "strides": 2, "padding": 1},
    ),
    "nn.avg_pool1d": Case(
        (normal(N, 3, M),),
        lambda x: windows_of(x[:, :, None], (1, 3), (1, 2), (0, 1, 0, 1), (1, 1), 0).mean((-2, -1))[:, :, 0],
        {"pool_size": 3, "strides": 2, "padding": 1, "count_include_pad": True},
    ),
    "nn.max_pool3d": Case((normal(N, 2, M, 4, 5),), lambda x: volumes(x, (2, 3, 2)).max(-1), {"pool_size": (2, 3, 2)}),
    "nn.avg_pool3d": Case((normal(N, 2, M, 4, 5),), lambda x: volumes(x, (2, 3, 2)).mean(-1), {"pool_size": (2, 3, 2)}),
    "nn.argmax_pool1d": Case(
        (normal(N, 3, M),),
        lambda x: first_best(x[..., None, None], (3, 1, 1))[..., 0, 0],
        {"pool_size": 3},
    ),
    "nn.argmax_pool2d": Case(
        (normal(N, 2, M, 4),),
        lambda x: first_best(x[..., None], (3, 2, 1))[..., 0],
        {"pool_size": (3, 2)},
    ),
    "nn.argmax_pool3d": Case(
        (RNG.integers(0, 9, (N, 2, M, 4, 5)).astype("float32"),),
        lambda x: first_best(x, (2, 3, 2)),
        {"pool_size": (2, 3, 2)},
    ),
    "nn.softmax": Case((X,), lambda x: softmax(x, 1), {"axis": 1}),
    "nn.log_softmax": Case((X,), lambda x: np.log(softmax(x.astype("f8"))).astype("f4"), tolerance=2e-6),
    "sum": Case((X,), lambda x: x.sum((0, 2)), {"axis": (0, 2)}, 1e-5),
    "mean": Case((X,), lambda x: x.mean(keepdims=True), {"keepdims": True}),
    "max": Case((X,), lambda x: x.max(1), {"axis": 1}),
    "min": Case((X,), lambda x: x.min(-1), {"axis": -1}),
    "prod": Case((X,), lambda x: x.prod(1), {"axis": 1}),
    "variance": Case((X,), lambda x: x.var((1, 2)), {"axis": (1, 2)}),
    "std": Case((X,), lambda x: x.std(0), {"axis": 0}),
    "argmax": Case((INTS,), lambda x: x.argmax(1), {"axis": 1}),
    "argmin": Case((INTS,), lambda x: x.argmin(0), {"axis": 0}),
    "cumsum": Case((X,), lambda x: x.cumsum(1), {"axis": 1}),
    "cumprod": Case((X,), lambda x: x.cumprod(-1), {"axis": -1}),
    "topk": Case((INTS,), best, {"k": 2}),
    "sort": Case((X,), lambda x: np.sort(x, 1), {"axis": 1}),
    "argsort": Case((INTS,), lambda x: x.argsort(0, kind="stable").astype("int32"), {"axis": 0}),
    "full": Case(((2, 3), 1.5), np.full, {"dtype": "float16"}),
    "zeros": Case(((2, 3),), np.zeros, {"dtype": "int8"}),
    "ones": Case(((2, 3),), np.ones, {"dtype": "bool"}),
    "full_like": Case((X, 2.5), np.full_like),
    "zeros_like": Case((INTS,), lambda x: np.zeros_like(x, "float32"), {"dtype": "float32"}),
    "ones_like": Case((INTS,), np.ones_like),
    "arange": Case((2, 11, 3), np.arange, {"dtype": "int32"}),
    "nn.rotary_embedding": Case((BATCH.q, *ANGLES), lambda x, cos, sin: turned(x, cos, sin)),
    "kv_cache.append": Case(
        (BATCH.k_pages, BATCH.v_pages, BATCH.q, BATCH.q, *BATCH.args[3:], 1, ANGLES),
        lambda *args: paged.append(*args, v_first=2),
        {"v_first": 2},
    ),
    "kv_cache.append_quantized": Case(
        (CODES.k_pages, CODES.v_pages, *SCALES, BATCH.q, BATCH.q, *BATCH.args[3:], 1, ANGLES),
        lambda *args: paged.append_quantized(*args, v_first=2),
        {"v_first": 2},
    ),
    "kv_cache.append_latent": Case(
        (BATCH.k_pages[:, :, :1].copy(), BATCH.q[:, 0].copy(), *BATCH.args[3:], 0),
        lambda pages, x, *places: paged.append(pages, BATCH.v_pages, x[:, None], x[:, None], *places, [])[0],
    ),
    "nn.dense_attention": Case(
        (X, normal(N, 7, 4), normal(N, 4, 2), SEEN),
        lambda q, k, v, seen: softmax(np.where(seen, q @ k * np.float32(0.5), -1e30)) @ v * seen.any(1)[:, None],
        {"scale": 0.5, "zero_rows": True},
        1e-5,
    ),
    "nn.paged_attention": Case(
        (*BATCH.args, 1, ANGLES),
        lambda *args: paged.attention(*args, **ATTENTION),
        ATTENTION,
    ),
    "recurrent.causal_conv": Case(
        (normal(4, 2, 6, 19), normal(8, 22), normal(7, 19), *recurrences.TOKENS, 1, normal(19)),
        lambda *args: recurrences.causal_conv(*args, first=2),
        {"first": 2, "activation": "silu"},
    ),
    "recurrent.gated_delta_rule": Case(
        (MATRICES, *KEYS[:2], VALUES, np.abs(GATES[0]), GATES[1], *recurrences.TOKENS, 1),
        recurrences.gated_delta_rule,
        tolerance=2e-5,
    ),
    "recurrent.rwkv7": Case(
        (MATRICES, *ROWS[:3], VALUES, *ROWS[3:], *recurrences.TOKENS, 1), recurrences.rwkv7, tolerance=2e-5
    ),
    "recurrent.wkv": Case(
        (MATRICES, *ROWS[:3], VALUES, ROWS[3][0].copy(), *recurrences.TOKENS, 1), recurrences.wkv, tolerance=2e-5
    ),
    "recurrent.token_shift": Case(
        (normal(4, 2, 45), normal(8, 45), *recurrences.TOKENS, 1), recurrences.token_shift, tolerance=0
    ),
    "nn.penalize": Case(
        (
            X[0],
            np.array([[3, 0, -1], [1, 4, 2], [7, 0, 5], [-1, -1, -1], [4, 3, -(2**31)]], "i4"),
            np.array([[0, 2, 1], [1, 3, 0], [1, 0, 1], [1, 1, 1], [5, -1, 9]], "i4"),
            np.array([[0, 2, 1], [0, -100, 0], [100, 0, 0.5], [1, 1, 1], [-3, 4, 0]], "f4"),
            np.array([0.5, -1, 2, 1, 0], "f4"),
            np.array([0.25, 0.75, -2, 1, 0], "f4"),
            np.array([1.3, 0.7, 1, 2, 1.1], "f4"),
        ),
        penalized,
    ),
    "recurrent.ssd": Case(
        (
            normal(4, 2, 4, 6, 19),
            normal(8, 100),
            normal(8, 7),
            normal(4),
            -np.abs(normal(4)),
            normal(4),
            *recurrences.TOKENS,
            1,
        ),
        partial(recurrences.ssd, **SSD),
        SSD,
        tolerance=4e-6,
    ),
    "recurrent.selective_scan": Case(
        (
            normal(4, 2, 1, 6, 19),
            normal(8, 1, 19),
            np.abs(normal(8, 1, 19)),
            *normal(2, 8, 6),
            -np.abs(normal(6, 19)),
            normal(19),
            *recurrences.TOKENS,
            1,
        ),
        recurrences.selective_scan,
        tolerance=4e-6,
    ),
    "nn.softmax_with_temperature": Case((X[0], np.array([0.5, 0, 1, 2, 3], "f4")), warm_softmax),
    "nn.filter_probabilities": Case(
        (
            softmax(X[0]),
            np.array([0, 3, 0, 0, 5], "i4"),
            np.array([1, 1, 0.6, 1, 0.9], "f4"),
            np.array([0, 0, 0, 0.2, 0.1], "f4"),
            np.array([1, 1, 1, 1, 0.5], "f4"),
        ),
        kept,
    ),
    "nn.sample_top_p": Case(
        (softmax(X[0]), np.array([0.1, 0.5, 0.9, 1, 1], "f4"), np.array([0.9, 0.3, 0.8, 0.99, 0], "f4")), drawn
    ),
}


def expected(case: Case, *args: Any) -> Any:
    result = case.reference(*args)
    return result.astype(case.attrs["dtype"]) if case.reference in (np.full, np.zeros, np.ones, np.arange) else result


def test_every_operator_has_a_case():
    assert sorted(CASES) == sorted(OPERATORS)


@pytest.mark.parametrize("name", CASES)
def test_interpreted(name: str):
    case = CASES[name]
    check_op(name, *case.args, reference=lambda *a: expected(case, *a), tolerance=case.tolerance, **case.attrs)


def every_operator() -> IRModule:
    """A module with a function for each operator; sizes 3 and 5 are symbolic."""
    functions = {}
    for name, case in CASES.items():
        graph = graph_of(name, case.args, case.attrs, symbolic=(N, M))["main"]
        functions[name.replace(".", "_")] = graph.with_attr("global_symbol", name.replace(".", "_"))
    return IRModule(functions)


@pytest.fixture(scope="module")
def lib() -> Library:
    return build(every_operator(), num_threads=2)


@pytest.mark.parametrize("name", CASES)
def test_compiled(lib: Library, name: str):
    check_compiled(lib, name)


def check_compiled(lib: Library, name: str, factor: float = 1.0) -> None:
    """Compare a function of ``every_operator`` with numpy. factor: multiplies the case's tolerance."""
    case = CASES[name]
    wanted = expected(case, *case.args)
    got = lib[name.replace(".", "_")](*(a.copy() for a in arrays_in(case.args)))
    for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (got, wanted)), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=factor * case.tolerance, atol=factor * case.tolerance)
