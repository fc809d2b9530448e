"""``tvm.tir``: variables, schedules and tensor intrinsics."""

from __future__ import annotations

from mlc_errors import UnsupportedError

from ..ir.expr import Var
from ..tir.nodes import PrimFunc
from ..tir.schedule import Schedule
from ..tir.script_intrin import ScriptIntrin, find_script_intrin, register_script_intrin
from . import tir_transform as transform

__all__ = ["PrimFunc", "Schedule", "TensorIntrin", "Var", "transform"]


class TensorIntrin:
    """``tvm.tir.TensorIntrin``: tensor intrinsics described and implemented in TVMScript."""

    @staticmethod
    def register(name: str, desc: PrimFunc, impl: PrimFunc, override: bool = False) -> None:
        """See ``register_script_intrin``."""
        register_script_intrin(name, desc, impl, override=override)

    @staticmethod
    def get(name: str, allow_missing: bool = False) -> ScriptIntrin | None:
        """Return a registered intrinsic. Raises UnsupportedError, or returns None, for an unknown name."""
        found = find_script_intrin(name)
        if found is None and not allow_missing:
            raise UnsupportedError(
                f"no instruction {name!r} is registered", hint="TensorIntrin.register(name, desc, impl)"
            )
        return found
