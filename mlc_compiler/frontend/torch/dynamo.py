"""``torch.compile(model, backend="mlc")``: graphs that TorchDynamo captures, compiled for this machine's CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch._dynamo import register_backend

from ...api import build
from ..values import ImportModelError
from .exported_program import MAIN, from_exported_program


@register_backend(name="mlc")
def compile_graph(graph: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., list[torch.Tensor]]:
    """Compile a graph to a function of its inputs, parameters included, that returns new tensors.

    For inference on the CPU, with constant sizes. Raises ImportModelError when gradients are recorded or sizes are
    symbolic, and for unsupported operators.
    """
    if not all(isinstance(x, torch.Tensor) for x in inputs):
        raise ImportModelError("torch.compile: got symbolic sizes", hint="torch.compile(…, dynamic=False)")
    if torch.is_grad_enabled() and any(x.requires_grad for x in inputs):
        raise ImportModelError("torch.compile: gradients are recorded", hint="call the model under torch.no_grad()")
    imported = from_exported_program(torch.export.export(graph, tuple(inputs)))
    function, held = build(imported.mod)[MAIN], list(imported.params.values())

    def call(*args: torch.Tensor) -> list[torch.Tensor]:
        results = function(*(a.detach().contiguous() for a in args), *held)
        return [torch.from_numpy(r) for r in (results if isinstance(results, list | tuple) else [results])]

    return call
