"""Replace parameters of a graph function by constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from mlc_errors import MLCError

from ..ir.expr import PrimExpr, Var
from ..ir.module import IRModule
from ..ir.recursion import deep_recursion
from ..ir.visitor import substitute
from . import nodes as rx
from .info import show_shape, static_size
from .instantiate import instantiate, match_info


class BindError(MLCError):
    """A parameter that does not exist, or a value of a wrong shape or dtype."""


@deep_recursion
def bind_params(mod: IRModule, name: str, params: Mapping[str, np.ndarray]) -> IRModule:
    """Replace parameters of the graph function ``name`` by constants, given by parameter name.

    Symbolic sizes are replaced by the sizes of the arrays. Raises BindError for an unknown name, shape or dtype.
    """
    func = mod.functions.get(name)
    if not isinstance(func, rx.Function):
        known = ", ".join(mod.of_type(rx.Function)) or "none"
        raise BindError(f"bind_params: no graph function {name!r}; the module has {known}")
    unknown = sorted(set(params) - {p.name for p in func.params})
    if unknown:
        known = ", ".join(p.name for p in func.params)
        raise BindError(f"bind_params: {name} has no parameter {unknown[0]!r}; it has {known}")
    sizes: dict[Var, PrimExpr] = {}
    constants = {p.name: _constant(p, params[p.name], sizes) for p in func.params if p.name in params}
    args = [constants.get(p.name) or _with_sizes(p, sizes) for p in func.params]
    blocks, ret = instantiate(func, args)
    left = tuple(a for a in args if isinstance(a, rx.Var))
    bound = replace(func, params=left, blocks=blocks, ret=ret, ret_info=substitute(func.ret_info, sizes))
    return mod.with_function(name, bound)


def _constant(param: rx.Var, data: np.ndarray, sizes: dict[Var, PrimExpr]) -> rx.Constant:
    value, info = rx.constant(data), param.struct_info
    got = value.struct_info
    assert isinstance(got, rx.TensorStructInfo) and got.shape is not None
    if isinstance(info, rx.TensorStructInfo) and info.shape is not None:
        match_info(info, got, sizes)
        expected = substitute(info.shape, sizes)
        if got.dtype == info.dtype and _same(got.shape, expected):
            return value
        wanted = f"{info.dtype}{show_shape(expected)}"
    else:
        wanted = "a tensor of known shape"
    raise BindError(f"bind_params: {param.name} got {got.dtype}{show_shape(got.shape)}; expected {wanted}")


def _with_sizes(param: rx.Var, sizes: Mapping[Var, PrimExpr]) -> rx.Var:
    return replace(param, struct_info=substitute(param.struct_info, sizes)) if sizes else param


def _same(a: Sequence[PrimExpr], b: Sequence[PrimExpr]) -> bool:
    return [static_size(x) for x in a] == [static_size(x) for x in b]
