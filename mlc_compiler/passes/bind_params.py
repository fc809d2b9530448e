"""Parameters of a graph function become constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mlc_errors import MLCError

from ..ir.expr import PrimExpr, Var
from ..ir.module import IRModule
from ..ir.visitor import substitute
from ..relax import nodes as rx
from ..relax.info import show_shape, static_size
from .base import Pass
from .inline_calls import instantiate, match_info


class BindError(MLCError):
    """A value that does not fit a parameter."""


@dataclass(frozen=True)
class BindParams(Pass):
    """Replace parameters of ``function`` by arrays, given by name; symbolic sizes take the values that these have."""

    name = "bind-params"

    function: str
    params: Mapping[str, np.ndarray]

    def run(self, mod: IRModule) -> IRModule:
        func = mod[self.function]
        if not isinstance(func, rx.Function):
            raise BindError(f"bind_params: {self.function!r} is a tensor function; expected a graph function")
        unknown = sorted(set(self.params) - {p.name for p in func.params})
        if unknown:
            known = ", ".join(p.name for p in func.params)
            raise BindError(f"bind_params: {self.function} has no parameter {unknown[0]!r}; it has {known}")
        return mod.update_func(self.function, self._bound(func))

    def _bound(self, func: rx.Function) -> rx.Function:
        sizes: dict[Var, PrimExpr] = {}
        constants = {p.name: self._constant(p, sizes) for p in func.params if p.name in self.params}
        args = [constants.get(p.name) or _renewed(p, sizes) for p in func.params]
        blocks, ret = instantiate(func, args)
        params = tuple(a for a in args if isinstance(a, rx.Var))
        return replace(func, params=params, blocks=blocks, ret=ret, ret_info=substitute(func.ret_info, sizes))

    def _constant(self, param: rx.Var, sizes: dict[Var, PrimExpr]) -> rx.Constant:
        value, info = rx.constant(self.params[param.name]), param.struct_info
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


def _renewed(param: rx.Var, sizes: Mapping[Var, PrimExpr]) -> rx.Var:
    return replace(param, struct_info=substitute(param.struct_info, sizes)) if sizes else param


def _same(a: Sequence[PrimExpr], b: Sequence[PrimExpr]) -> bool:
    return [static_size(x) for x in a] == [static_size(x) for x in b]
