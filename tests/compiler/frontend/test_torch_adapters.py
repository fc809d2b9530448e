"""``from_fx``, and ``torch.compile`` with this compiler."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mlc_compiler import build
from mlc_compiler.frontend.torch import ImportModelError, from_fx
from tests.compiler.frontend.imports import compare


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(12, 20), nn.Linear(20, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.down(nn.functional.gelu(self.up(x))), -1)


def test_from_fx_binds_parameters_or_takes_them():
    model, x = Classifier().eval(), torch.randn(3, 12)
    graph = torch.fx.symbolic_trace(model)
    bound = from_fx(graph, [((3, 12), "float32")])
    assert [p.name for p in bound["main"].params] == ["x"]
    compare(build(bound)["main"](x), [model(x)], 1e-5)
    apart = from_fx(graph, [((3, 12), "float32")], keep_params_as_input=True)
    assert [p.name for p in apart["main"].params] == ["x", "up_weight", "up_bias", "down_weight", "down_bias"]


def test_from_fx_takes_constant_sizes():
    with pytest.raises(ImportModelError, match=r"input_info: got \('n', 12\), 'float32'; expected numbers"):
        from_fx(torch.fx.symbolic_trace(Classifier()), [(("n", 12), "float32")])


def test_torch_compile():
    model, x = Classifier().eval(), torch.randn(3, 12)
    compiled = torch.compile(model, backend="mlc", dynamic=False)
    with torch.no_grad():
        compare(compiled(x).numpy(), [model(x)], 1e-5)
        model.up.bias.add_(1.0)
        compare(compiled(x.flip(0)).numpy(), [model(x.flip(0))], 1e-5)


def test_torch_compile_refuses_to_record_gradients():
    compiled = torch.compile(Classifier(), backend="mlc", dynamic=False)
    with pytest.raises(Exception, match="gradients are recorded"):
        compiled(torch.randn(2, 12))
