"""The functions that ``benchmarks/tuning.py`` searches, written with this project's ``te`` or Apache TVM's."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from types import ModuleType
from typing import Any

Expressions = Callable[[ModuleType], list[Any]]

ROWS, COLUMNS = 512, 1024  # of softmax and of layer norm
IMAGE, CHANNELS = 56, 64
HEADS, TOKENS, HEAD = 8, 128, 64
OUTPUTS, INPUTS, GROUP, CODES = 2048, 2048, 32, 8  # of a matmul with 4-bit weights; CODES: per word
EPSILON = 1e-5


def product_relu(lang: ModuleType, size: int) -> list[Any]:
    """``C = max(A B, 0)``, float32 [size, size]."""
    a = lang.placeholder((size, size), "float32", name="A")
    b = lang.placeholder((size, size), "float32", name="B")
    k = lang.reduce_axis((0, size), name="k")
    y = lang.compute((size, size), lambda i, j: lang.sum(a[i, k] * b[k, j], axis=k), name="Y")
    c = lang.compute((size, size), lambda i, j: lang.max(y[i, j], 0), name="C")
    return [a, b, c]


def convolution(lang: ModuleType) -> list[Any]:
    """A 3 x 3 convolution of float32 [IMAGE, IMAGE, CHANNELS] with zero padding."""
    x = lang.placeholder((IMAGE, IMAGE, CHANNELS), "float32", name="x")
    w = lang.placeholder((3, 3, CHANNELS, CHANNELS), "float32", name="w")

    def bordered(i: Any, j: Any, c: Any) -> Any:
        inside = lang.all(i >= 1, i <= IMAGE, j >= 1, j <= IMAGE)
        return lang.if_then_else(inside, x[i - 1, j - 1, c], 0.0)

    border = lang.compute((IMAGE + 2, IMAGE + 2, CHANNELS), bordered, name="border")
    a, b, c = (lang.reduce_axis((0, extent), name=name) for name, extent in (("a", 3), ("b", 3), ("c", CHANNELS)))
    y = lang.compute(
        (IMAGE, IMAGE, CHANNELS),
        lambda i, j, o: lang.sum(border[i + a, j + b, c] * w[a, b, c, o], axis=[a, b, c]),
        name="y",
    )
    return [x, w, y]


def softmax(lang: ModuleType) -> list[Any]:
    """Softmax along the rows of float32 [ROWS, COLUMNS]."""
    x = lang.placeholder((ROWS, COLUMNS), "float32", name="x")
    return [x, _softmax(lang, x)]


def layer_norm(lang: ModuleType) -> list[Any]:
    """Layer norm along the rows of float32 [ROWS, COLUMNS], with scale and offset."""
    x = lang.placeholder((ROWS, COLUMNS), "float32", name="x")
    gamma, beta = (lang.placeholder((COLUMNS,), "float32", name=name) for name in ("gamma", "beta"))
    total = _row_sum(lang, lambda i, k: x[i, k], "total")
    square = _row_sum(lang, lambda i, k: x[i, k] * x[i, k], "square")

    def element(i: Any, j: Any) -> Any:
        mean = total[i] / float(COLUMNS)
        variance = square[i] / float(COLUMNS) - mean * mean
        return (x[i, j] - mean) * lang.rsqrt(variance + EPSILON) * gamma[j] + beta[j]

    return [x, gamma, beta, lang.compute((ROWS, COLUMNS), element, name="y")]


def attention(lang: ModuleType) -> list[Any]:
    """Attention of HEADS heads, TOKENS queries and keys of HEAD elements, float32, without a mask."""
    q, k, v = (lang.placeholder((HEADS, TOKENS, HEAD), "float32", name=name) for name in "qkv")
    d = lang.reduce_axis((0, HEAD), name="d")
    scores = lang.compute(
        (HEADS, TOKENS, TOKENS), lambda h, i, j: lang.sum(q[h, i, d] * k[h, j, d], axis=d), name="scores"
    )
    scaled = lang.compute((HEADS, TOKENS, TOKENS), lambda h, i, j: scores[h, i, j] * (1 / sqrt(HEAD)), name="scaled")
    weights = _softmax(lang, scaled)
    t = lang.reduce_axis((0, TOKENS), name="t")
    y = lang.compute((HEADS, TOKENS, HEAD), lambda h, i, e: lang.sum(weights[h, i, t] * v[h, t, e], axis=t), name="y")
    return [q, k, v, y]


def gemv(lang: ModuleType) -> list[Any]:
    """A GEMV of one row by 4-bit weights ``(code - 7) * scale``, with a scale per group of GROUP, in float32."""
    x = lang.placeholder((1, INPUTS), "float32", name="x")
    codes = lang.placeholder((OUTPUTS, INPUTS // CODES), "uint32", name="codes")
    scales = lang.placeholder((OUTPUTS, INPUTS // GROUP), "float32", name="scales")

    def weight(o: Any, i: Any) -> Any:
        code = (codes[o, i // CODES] >> (i % CODES * 4).astype("uint32")) & lang.const(15, "uint32")
        return (code.astype("float32") - 7.0) * scales[o, i // GROUP]

    w = lang.compute((OUTPUTS, INPUTS), weight, name="weight")
    k = lang.reduce_axis((0, INPUTS), name="k")
    y = lang.compute((1, OUTPUTS), lambda i, o: lang.sum(x[i, k] * w[o, k], axis=k), name="y")
    return [x, codes, scales, y]


def _row_sum(lang: ModuleType, element: Callable[[Any, Any], Any], name: str) -> Any:
    k = lang.reduce_axis((0, COLUMNS), name="k")
    return lang.compute((ROWS,), lambda i: lang.sum(element(i, k), axis=k), name=name)


def _softmax(lang: ModuleType, x: Any) -> Any:
    """Softmax along the last axis."""
    *rows, columns = (int(size) for size in x.shape)
    k, m = (lang.reduce_axis((0, columns), name=name) for name in "km")
    largest = lang.compute(tuple(rows), lambda *i: lang.max(x[(*i, k)], axis=k), name="largest")
    power = lang.compute((*rows, columns), lambda *i: lang.exp(x[i] - largest[i[:-1]]), name="power")
    total = lang.compute(tuple(rows), lambda *i: lang.sum(power[(*i, m)], axis=m), name="total")
    return lang.compute((*rows, columns), lambda *i: power[i] / total[i[:-1]], name="share")


WORKLOADS: dict[str, Expressions] = {
    "matmul-128": lambda lang: product_relu(lang, 128),
    "matmul-1024": lambda lang: product_relu(lang, 1024),
    "convolution": convolution,
    "softmax": softmax,
    "layer-norm": layer_norm,
    "attention": attention,
    "gemv": gemv,
}
