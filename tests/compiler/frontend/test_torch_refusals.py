"""Unsupported parts of PyTorch programs, and sizes computed in programs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim

from mlc_compiler.frontend.torch import ImportModelError
from tests.compiler.frontend.imports import check, exported


class Of(torch.nn.Module):
    """A model that calls a function."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return x + self.calls


def test_unknown_operators_are_named_at_once():
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv(x) + torch.fft.fft(x).real + torch.linalg.inv(x + 1)

    named = r"aten\._fft_r2c\.default \(1\), .*aten\.linalg_inv_ex\.default \(2\)"
    with pytest.raises(ImportModelError, match=named):
        exported(Of(f), [torch.randn(3, 3)])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.index_put((x[0] > 0,), x[0]), "expected values that all share"),
        (lambda x: torch.native_dropout(x, 0.5, True)[0], "dropout in training mode"),
    ],
)
def test_refused_arguments_are_named_with_their_node(function: Callable[..., Any], message: str):
    with pytest.raises(ImportModelError, match=re.escape(message)) as error:
        exported(Of(function), [torch.randn(3, 3, 3)])
    assert "call_function" in error.value.message


def test_strides_of_a_transposed_tensor_are_refused():
    with pytest.raises(ImportModelError, match="as_strided of a tensor that is not contiguous"):
        exported(Of(lambda x: x.T.as_strided((2, 2), (1, 2))), [torch.randn(3, 4)])


def test_a_program_that_changes_its_buffers_is_refused():
    with pytest.raises(ImportModelError, match=r"the program writes to calls \(buffer mutation\)"):
        exported(Counter(), [torch.randn(3)])


def test_sizes_are_computed():
    """Sums, products, quotients and remainders of sizes as shapes, slices, fills and numbers."""

    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        n, m = x.shape[0], y.shape[1]
        joined = torch.cat([x.expand(m, n, 4).reshape(n * m, 4), y.T.repeat(1, 2)[:, :4]])
        return (
            joined,
            x * (n // 2) + n % 3,
            torch.arange(n - 1) + m,
            x[1 : n - 1],
            torch.ones(m, n) * -n,
            x.new_zeros(n, 2 * m),
        )

    def inputs(n: int, m: int) -> tuple[torch.Tensor, ...]:
        return torch.randn(n, 4), torch.randn(2, m)

    dynamic = (({0: Dim("n", min=4, max=9)}, {1: Dim("m", min=2)}),)
    check(Of(f), *inputs(5, 3), dynamic=dynamic, others=[inputs(8, 2), inputs(4, 7)], tolerance=1e-6)
