"""Comparison of imported models with PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from mlc_compiler import build
from mlc_compiler.frontend.torch import Imported, from_exported_program


def outputs(result: Any) -> list[torch.Tensor]:
    """The tensors of a model's result: nested structures are flattened, None is dropped."""
    return [leaf for leaf in torch.utils._pytree.tree_leaves(result) if leaf is not None]


def exported(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, dynamic: Any = None
) -> Imported:
    """Export a model in evaluation mode, and import it."""
    program = torch.export.export(model.eval(), tuple(args), dict(kwargs or {}), dynamic_shapes=dynamic)
    return from_exported_program(program)


def check(
    model: torch.nn.Module,
    *args: torch.Tensor,
    dynamic: Any = None,
    others: Sequence[Sequence[torch.Tensor]] = (),
    tolerance: float = 1e-4,
    **kwargs: torch.Tensor,
) -> Imported:
    """Assert that the compiled model's results equal PyTorch's. others: arguments of further calls, with other dynamic
    sizes."""
    imported = exported(model, args, kwargs, dynamic)
    function = build(imported.mod, num_threads=1)["main"]
    for given in ((*args, *kwargs.values()), *others):
        got = function(*given, *imported.params.values())
        with torch.no_grad():
            wanted = outputs(model(*given[: len(args)], **dict(zip(kwargs, given[len(args) :], strict=True))))
        compare(got, wanted, tolerance)
    return imported


def compare(got: Any, wanted: Sequence[torch.Tensor], tolerance: float = 1e-4) -> None:
    """Assert that shapes and dtypes are equal, and elements within a tolerance."""
    results = got if isinstance(got, list | tuple) else [got]
    assert len(results) == len(wanted)
    for a, b in zip(results, wanted, strict=True):
        expected = b.detach().numpy()
        assert (a.shape, a.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(a, expected, rtol=tolerance, atol=tolerance)
