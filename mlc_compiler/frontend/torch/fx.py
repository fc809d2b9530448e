"""Import of a traced GraphModule (``torch.fx``) with Apache TVM's signature."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...ir.module import IRModule
from ..values import ImportModelError
from .exported_program import from_exported_program

InputInfo = Sequence[tuple[Sequence[int], str]]


def from_fx(model: torch.fx.GraphModule, input_info: InputInfo, *, keep_params_as_input: bool = False) -> IRModule:
    """Import a graph as the function ``main``, with the parameters bound as constants.

        mod = from_fx(torch.fx.symbolic_trace(model), [((1, 784), "float32")])

    input_info: shape and dtype of each input. keep_params_as_input: used parameters become arguments after
    the inputs, in the order of ``model``. The graph is traced again on inputs of these shapes. Raises ImportModelError
    like ``from_exported_program``, and for symbolic sizes.
    """
    inputs = tuple(_placeholder(shape, dtype) for shape, dtype in input_info)
    return from_exported_program(torch.export.export(model.eval(), inputs), keep_params_as_input).mod


def _placeholder(shape: Sequence[int], dtype: str) -> torch.Tensor:
    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype) or not all(isinstance(size, int) for size in shape):
        hint = "torch.export with dynamic_shapes and from_exported_program have symbolic sizes"
        raise ImportModelError(f"input_info: got {tuple(shape)}, {dtype!r}; expected numbers and a dtype", hint=hint)
    return torch.zeros(tuple(shape), dtype=kind)
