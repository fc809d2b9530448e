"""Operations on traced tensors from graph operators, with the same parameters, defaults and docstring."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from inspect import Parameter, Signature
from operator import or_
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from ...ir.expr import PrimExpr
from ...relax.ops import Operator
from ...tir import te
from ..tensor import Number, Size, Tensor, apply

Operand = Tensor | Number


def traced(operator: Operator, operands: Mapping[str, Any] | None = None) -> Callable[..., Tensor]:
    """Wrap an operator as a function that binds its result; attributes may also be positional.

    operands: names and annotations of the positional parameters, if they differ from the operator's.
    """
    name = operator.name.split(".")[-1]
    signature = _signature(operator, operands or {n: _annotation(kind) for n, kind in operator.kinds.items()})

    def operation(*args: Any, **kwargs: Any) -> Tensor:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}{_listed(signature)}: {error}") from None
        bound.apply_defaults()
        values = tuple(bound.arguments.values())
        count = len(operator.kinds)
        return apply(operator, *values[:count], **dict(zip(operator.attr_names, values[count:])))

    operation.__name__ = operation.__qualname__ = name
    operation.__module__ = __package__
    operation.__doc__ = operator.doc
    operation.__signature__ = signature  # type: ignore[attr-defined]
    operation.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()} | {"return": Tensor}
    return operation


def _signature(operator: Operator, operands: Mapping[str, Any]) -> Signature:
    optional = [None if kind == te.Tensor | None else Parameter.empty for kind in operator.kinds.values()]
    rows = [(name, default, kind) for (name, kind), default in zip(operands.items(), optional, strict=True)]
    rows += [(name, default, _annotation(operator.attr_types[name])) for name, default in operator.defaults.items()]
    either = Parameter.POSITIONAL_OR_KEYWORD
    parameters = [Parameter(name, either, default=default, annotation=kind) for name, default, kind in rows]
    return Signature(parameters, return_annotation=Tensor)


def _annotation(kind: Any) -> Any:
    """Convert the annotation of an operator's parameter to traced tensors, sequences and sizes."""
    if isinstance(kind, UnionType):
        return reduce(or_, map(_annotation, get_args(kind)))
    if get_origin(kind) is tuple:
        return Sequence[_annotation(get_args(kind)[0])]  # type: ignore[misc]
    return {te.Tensor: Tensor, PrimExpr: Size, NoneType: None}.get(kind, kind)


def _listed(signature: Signature) -> str:
    """The signature without annotations, such as ``(x, axis=-1)``."""
    plain = [p.replace(annotation=Parameter.empty) for p in signature.parameters.values()]
    return str(Signature(plain))
