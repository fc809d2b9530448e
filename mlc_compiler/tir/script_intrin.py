"""User-defined instructions as two tensor functions: the computation, and the statements that implement it."""

from __future__ import annotations

from dataclasses import dataclass

from mlc_errors import MLCError

from ..ir.expr import Var
from .intrinsics import tensor_intrins
from .nodes import BlockRealize, PrimFunc, is_root


@dataclass(frozen=True)
class ScriptIntrin:
    """``desc``: a loop nest around one block; ``impl``: statements over the same parameters that replace it."""

    name: str
    desc: PrimFunc
    impl: PrimFunc


_registered: dict[str, ScriptIntrin] = {}


def register_script_intrin(name: str, desc: PrimFunc, impl: PrimFunc, *, override: bool = False) -> ScriptIntrin:
    """Register an intrinsic: ``Schedule.tensorize(loop, name)`` replaces a nest that matches ``desc`` by ``impl``.

    The parameters of both are buffers of equal shapes and dtypes, in the same order. Their equivalence is not
    checked. Raises MLCError for a name that is taken, unless ``override``, when the parameters differ, and when
    one of the functions allocates buffers or has no root block.
    """
    if (name in _registered or name in tensor_intrins()) and not override:
        raise MLCError(f"there is a tensor intrinsic {name!r} already", hint="pass override=True to replace it")
    made = ScriptIntrin(name, desc, impl)
    _check(made)
    _registered[name] = made
    return made


def find_script_intrin(name: str) -> ScriptIntrin | None:
    return _registered.get(name)


def _check(intrin: ScriptIntrin) -> None:
    found, expected = (_types(func, intrin.name) for func in (intrin.impl, intrin.desc))
    if found != expected:
        raise MLCError(f"tensor intrinsic {intrin.name!r}: impl takes {found}; expected those of desc, {expected}")
    for what, func in (("desc", intrin.desc), ("impl", intrin.impl)):
        body = func.body
        if not (isinstance(body, BlockRealize) and is_root(body)):
            raise MLCError(f"tensor intrinsic {intrin.name!r}: {what} has no root block")
        if body.block.alloc_buffers:
            names = ", ".join(b.name for b in body.block.alloc_buffers)
            raise MLCError(f"tensor intrinsic {intrin.name!r}: {what} allocates {names}; expected parameters only")


def _types(func: PrimFunc, name: str) -> str:
    """The dtypes and shapes of the parameters as text. Raises MLCError for scalar parameters."""
    scalars = [p.name for p in func.params if isinstance(p, Var)]
    if scalars:
        raise MLCError(f"tensor intrinsic {name!r}: got the scalars {', '.join(scalars)}; expected buffers only")
    return ", ".join(f"{b.dtype} {[getattr(size, 'value', '?') for size in b.shape]}" for b in func.buffers)
