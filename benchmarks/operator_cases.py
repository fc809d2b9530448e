"""The operators of ``operators.py``, on sizes of BERT, ViT, Whisper and ResNet, and on 4096 x 1024 elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

import torch
from torch.nn import functional

BERT, VIT, WHISPER, LARGE = (128, 768), (197, 768), (1500, 384), (4096, 1024)
IMAGE = (1, 64, 56, 56)
Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Case:
    """A function of tensors. shape: of its first argument, distinct floats; others: makes the other arguments."""

    operator: str
    shape: tuple[int, ...]
    function: Callable[..., Any]
    others: Callable[[tuple[int, ...]], Tensors] = lambda shape: ()

    @property
    def size(self) -> str:
        return " x ".join(map(str, self.shape))

    def inputs(self) -> Tensors:
        torch.manual_seed(0)
        count = prod(self.shape)
        x = (torch.randperm(count) / count - 0.5) * sqrt(12)  # uniform with variance 1; sorted in one order only
        return x.reshape(self.shape), *self.others(self.shape)


def _of_last(count: int) -> Callable[[tuple[int, ...]], Tensors]:
    return lambda shape: tuple(torch.randn(shape[-1]) for _ in range(count))


def _of_channels(shape: tuple[int, ...]) -> Tensors:
    return torch.randn(shape[1]), torch.randn(shape[1])


def _statistics(shape: tuple[int, ...]) -> Tensors:
    return torch.randn(shape[1]), torch.rand(shape[1]) + 0.5, *_of_channels(shape)


def _columns(shape: tuple[int, ...]) -> Tensors:
    return (torch.randint(0, shape[1], shape),)


def _rows(shape: tuple[int, ...]) -> Tensors:
    return (torch.randint(0, shape[0], (shape[0],)),)


def _added(shape: tuple[int, ...]) -> Tensors:
    return *_columns(shape), torch.randn(shape)


def _layer_norm(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(x, x.shape[-1:], gamma, beta)


def _batch_norm(
    x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor
) -> torch.Tensor:
    return functional.batch_norm(x, mean, variance, gamma, beta)


CASES = (
    *(Case("layer norm", shape, _layer_norm, _of_last(2)) for shape in (BERT, VIT, WHISPER, LARGE)),
    *(
        Case("rms norm", shape, lambda x, w: functional.rms_norm(x, x.shape[-1:], w), _of_last(1))
        for shape in (BERT, LARGE)
    ),
    *(
        Case("group norm", s, lambda x, g, b: functional.group_norm(x, 8, g, b), _of_channels)
        for s in (IMAGE, (1, 320, 32, 32))
    ),
    Case("batch norm", IMAGE, _batch_norm, _statistics),
    *(
        Case("softmax", shape, lambda x: torch.softmax(x, -1))
        for shape in ((12, 128, 128), (12, 197, 197), (6, 500, 1500), LARGE)
    ),
    *(Case("softmax of columns", shape, lambda x: torch.softmax(x, 0)) for shape in (BERT, LARGE)),
    Case("log softmax", LARGE, lambda x: torch.log_softmax(x, -1)),
    *(Case("sum of rows", shape, lambda x: x.sum(-1)) for shape in (BERT, LARGE)),
    *(Case("sum of columns", shape, lambda x: x.sum(0)) for shape in (BERT, LARGE)),
    *(Case("sum", shape, lambda x: x.sum()) for shape in (BERT, LARGE)),
    *(Case("max of rows", shape, lambda x: x.amax(-1)) for shape in (BERT, LARGE)),
    *(Case("max of columns", shape, lambda x: x.amax(0)) for shape in (BERT, LARGE)),
    *(Case("max", shape, lambda x: x.amax()) for shape in (BERT, LARGE)),
    *(Case("argmax of rows", shape, lambda x: x.argmax(-1)) for shape in (BERT, LARGE)),
    Case("argmax of columns", LARGE, lambda x: x.argmax(0)),
    Case("argmax", LARGE, lambda x: x.argmax()),
    *(Case("variance of rows", shape, lambda x: x.var(-1)) for shape in (BERT, LARGE)),
    Case("mean of images", IMAGE, lambda x: x.mean((2, 3))),
    Case("mean of images", (1, 512, 7, 7), lambda x: x.mean((2, 3))),
    Case("max pooling", (1, 64, 112, 112), lambda x: functional.max_pool2d(x, 3, 2, 1)),
    *(Case("cumsum of rows", shape, lambda x: x.cumsum(-1)) for shape in (BERT, LARGE)),
    *(Case("cumsum of columns", shape, lambda x: x.cumsum(0)) for shape in (BERT, LARGE)),
    *(Case("sort of rows", shape, lambda x: tuple(torch.sort(x, -1))) for shape in (BERT, LARGE)),
    Case("sort of columns", (1024, 768), lambda x: tuple(torch.sort(x, 0))),
    Case("sort", (100_000,), lambda x: tuple(torch.sort(x, 0))),
    Case("top 10 of rows", LARGE, lambda x: tuple(torch.topk(x, 10))),
    Case("top 100 of rows", LARGE, lambda x: tuple(torch.topk(x, 100))),
    *(Case("rows by index", shape, lambda x, i: x[i], _rows) for shape in (BERT, LARGE)),
    *(Case("gather", shape, lambda x, i: x.gather(1, i), _columns) for shape in (BERT, LARGE)),
    *(Case("scatter add", shape, lambda x, i, v: x.scatter_add(1, i, v), _added) for shape in (BERT, LARGE)),
    Case(
        "scatter add to columns",
        LARGE,
        lambda x, i, v: x.scatter_add(0, i, v),
        lambda s: (torch.randint(0, s[0], s), torch.randn(s)),
    ),
    *(
        Case("index add", shape, lambda x, i, v: x.index_add(0, i, v), lambda s: (*_rows(s), torch.randn(s)))
        for shape in (BERT, LARGE)
    ),
    *(Case("gelu", shape, functional.gelu) for shape in (BERT, LARGE)),
)
