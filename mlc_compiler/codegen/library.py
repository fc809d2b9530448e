"""A lowered module as one shared library: kernels, graph functions, worker team, FFI entries and metadata."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir as ll

from mlc_version import __version__

from ..ir.expr import IntImm, PrimExpr, as_expr
from ..ir.module import IRModule
from ..relax.nodes import Function
from ..script.printer import script
from ..target import Target
from ..tir.nodes import PrimFunc
from .errors import ErrorReporter
from .ffi import FfiRuntime
from .host import Callees, Slot, emit_job, frame_of, tensor_infos
from .kernels import declare_kernel, emit_kernel
from .native import data_layout
from .packed_calls import PackedCalls
from .team import TeamRuntime
from .values import I8

METADATA_SYMBOL = "__mlc_metadata"
FORMAT = "mlc-lib-1"
INSTRUCTIONS_IN_A_MODULE = 1000  # enough that modules cost nothing, few enough that every core gets some


def emit_llvm(mod: IRModule, target: Target, metadata: Mapping[str, Any] | None = None) -> Iterator[str]:
    """The LLVM modules of a lowered and planned IRModule, as text: some with kernels, then one with all else.

    What is in which module does not depend on the machine that compiles.
    """
    yield from _kernel_modules(mod, target)
    module = _new_module(target)
    team = TeamRuntime(module, target)
    errors = ErrorReporter(module)
    ffi = FfiRuntime(module, team, errors)
    kernels = {name: declare_kernel(module, func, _symbol(name)) for name, func in mod.of_type(PrimFunc).items()}
    callees = Callees(kernels, PackedCalls(module, errors))
    for name, func in exported(mod).items():
        ffi.emit_entry(name, func, emit_job(module, name, func, callees))
    _metadata_symbol(module, {**(metadata or {}), **describe(mod, target)})
    yield str(module)


def _kernel_modules(mod: IRModule, target: Target) -> Iterator[str]:
    module, instructions = _new_module(target), 0
    for name, func in mod.of_type(PrimFunc).items():
        kernel = declare_kernel(module, func, _symbol(name))
        emit_kernel(kernel, func, target)
        instructions += sum(len(block.instructions) for block in kernel.blocks)
        if instructions > INSTRUCTIONS_IN_A_MODULE:
            yield str(module)
            module, instructions = _new_module(target), 0
    if instructions:
        yield str(module)


def _new_module(target: Target) -> ll.Module:
    module = ll.Module("mlc")
    module.triple = target.triple
    module.data_layout = data_layout(target)
    return module


def _symbol(name: str) -> str:
    return f"kernel.{name}"


def exported(mod: IRModule) -> dict[str, Function]:
    """The graph functions that the library exports."""
    return {n: f for n, f in mod.of_type(Function).items() if not f.attrs.get("Primitive")}


def describe(mod: IRModule, target: Target) -> dict[str, Any]:
    """The part of the metadata that follows from the code: functions with their tensors, target, versions."""
    return {
        "format": FORMAT,
        "compiler_version": __version__,
        "llvm_version": ".".join(map(str, llvm.llvm_version_info)),
        "target": target.describe(),
        "functions": {name: _signature(f) for name, f in exported(mod).items()},
    }


def _signature(func: Function) -> dict[str, Any]:
    """Inputs and outputs in the order in which the entry takes them, and what they are to a caller.

    ``arguments`` and ``result`` are there when a caller's view is another: nested lists of positions in ``inputs``, and
    of ``{"output": position}`` or ``{"input": position}``, ``{"shape": sizes}`` or ``{"value": size}``.
    """
    described = [_describe(slot) for slot in frame_of(func).slots]
    split = len(described) - int(func.attrs.get("num_outputs", 0))
    for position in func.attrs.get("written_inputs", ()):
        described[int(position)]["written"] = True
    signature = {
        "inputs": described[:split],
        "outputs": described[split:],
        "workspace_bytes": _size(as_expr(func.attrs.get("workspace_bytes", 0))),
    }
    nested = {name: _plain(func.attrs[name]) for name in ("arguments", "result") if name in func.attrs}
    return signature | nested


def _plain(nested: Any) -> Any:
    """Positions and sizes, however nested, as JSON has them."""
    if isinstance(nested, Mapping):
        return {key: _plain(value) for key, value in nested.items()}
    if isinstance(nested, Sequence):
        return [_plain(value) for value in nested]
    return _size(nested) if isinstance(nested, PrimExpr) else nested


def _describe(slot: Slot) -> dict[str, Any]:
    """A tensor; a scalar has no shape, and ``value`` names the size that it is."""
    name = slot.var.name
    if slot.scalar is not None:
        return {"name": name, "dtype": slot.scalar, "value": slot.symbol.name if slot.symbol is not None else None}
    infos = tensor_infos(slot.var)
    if slot.is_table:
        return {"name": name, "shape": [len(infos)], "dtype": "int64"}
    return {"name": name, "shape": [_size(s) for s in infos[0].shape or ()], "dtype": infos[0].dtype}


def _size(size: PrimExpr) -> int | str:
    """A number, a symbol, or arithmetic on symbols as text."""
    return size.value if isinstance(size, IntImm) else script(size)


def _metadata_symbol(module: ll.Module, metadata: Mapping[str, Any]) -> None:
    raw = bytearray(json.dumps(metadata, ensure_ascii=True).encode() + b"\0")
    array = ll.ArrayType(I8, len(raw))
    symbol = ll.GlobalVariable(module, array, METADATA_SYMBOL)
    symbol.initializer = ll.Constant(array, raw)
    symbol.global_constant = True
