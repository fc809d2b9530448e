"""Apache TVM's Python API on top of this compiler: code written for TVM only needs other imports.

    import mlc_compiler.compat as tvm
    from mlc_compiler.compat import nn, relax
    from mlc_compiler.compat.script import tir as T

Every name is an alias or a thin wrapper of this compiler's API. Options without a counterpart
are refused. ``transforms`` lists the passes.
"""

from __future__ import annotations

from typing import Any

from .. import api, target
from ..tir import te
from . import dlight, ir, meta_schedule, nd, nn, relax, runtime, script, tir, topi
from . import transforms as transform
from .functions import get_global_func
from .ir import IRModule
from .runtime import cpu, cuda, device
from .virtual_machine import VirtualMachine

register_func = api.register_func


def build(mod: api.Buildable, target: Any = None) -> VirtualMachine:
    """Compile a module, or a tensor function, to callable functions; see ``mlc_compiler.build``."""
    return VirtualMachine(api.build(mod, target))


__all__ = [
    "IRModule",
    "build",
    "cpu",
    "cuda",
    "device",
    "dlight",
    "get_global_func",
    "ir",
    "meta_schedule",
    "nd",
    "nn",
    "register_func",
    "relax",
    "runtime",
    "script",
    "target",
    "te",
    "tir",
    "topi",
    "transform",
]
