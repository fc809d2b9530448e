"""Exported modules with fewer graph functions, for tests that do not need all."""

from __future__ import annotations

from collections.abc import Container

from mlc_compiler.ir.module import IRModule


def without_functions(mod: IRModule, names: Container[str]) -> IRModule:
    """The module without the functions of these names."""
    return mod.with_functions({name: function for name, function in mod.functions.items() if name not in names})
