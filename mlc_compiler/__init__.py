"""A compiler for tensor programs: it compiles modules of graph functions and tensor functions to a native library.

    from mlc_compiler import build, parse

    lib = build(parse(text))
    y = lib["main"](x, w)

| task | names |
|---|---|
| make a module | ``parse`` (text); ``I``, ``R``, ``T`` (Python source); ``te``; ``BlockBuilder`` and ``ops``; ``nn`` |
| inspect a module | ``to_script``, ``structural_equal``, ``emit_llvm``, ``emit_asm``, ``emit_ptx`` |
| transform a module | ``bind_params``, ``Schedule`` (loops of tensor functions), ``register_tensor_intrin`` |
| run a module | ``build``, ``load_library`` (both give a ``Library``); ``register_func``: Python functions it calls |

``mlc_compiler.compat`` provides Apache TVM's names for this API. Errors are MLCErrors. Names are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import Any

_FUNCTIONS = (
    "bind_params",
    "build",
    "emit_asm",
    "emit_llvm",
    "emit_ptx",
    "load_library",
    "parse",
    "register_func",
    "to_script",
)
_EXPORTS = {
    **dict.fromkeys(_FUNCTIONS, "mlc_compiler.api"),
    "BlockBuilder": "mlc_compiler.relax.builder",
    "GlobalVar": "mlc_compiler.ir.module",
    "I": "mlc_compiler.script",
    "IRModule": "mlc_compiler.ir.module",
    "Library": "mlc_runtime.library",
    "Operand": "mlc_compiler.tir.intrinsics",
    "R": "mlc_compiler.script",
    "Schedule": "mlc_compiler.tir.schedule",
    "ScriptError": "mlc_compiler.script",
    "T": "mlc_compiler.script",
    "TensorIntrin": "mlc_compiler.tir.intrinsics",
    "constant": "mlc_compiler.relax.nodes",
    "register_tensor_intrin": "mlc_compiler.tir.intrinsics",
    "structural_equal": "mlc_compiler.ir.structural",
    "tensor_var": "mlc_compiler.relax.builder",
}
_MODULES = {"nn": "mlc_compiler.nn", "ops": "mlc_compiler.relax.ops", "te": "mlc_compiler.tir.te"}

__all__ = sorted([*_EXPORTS, *_MODULES])


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    importlib.import_module("mlc_compiler.script")  # registers the TVMScript printer with ``Printable``
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
