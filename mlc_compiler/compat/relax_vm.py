"""``relax.vm``, from older versions of TVM."""

from __future__ import annotations

from typing import Any

from mlc_runtime.library import Library

from .. import api
from ..ir.module import IRModule
from .virtual_machine import VirtualMachine


def build(mod: IRModule, target: Any = None) -> Library:
    """Compile a module; see ``mlc_compiler.build``."""
    return api.build(mod, target)


__all__ = ["VirtualMachine", "build"]
