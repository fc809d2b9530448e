"""The host module of a library: graph functions, their entries in the TVM FFI ABI, and the metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import llvmlite.binding as llvm

from mlc_files import NO_SUM, SUM_KEY
from mlc_version import __version__

from ..ir.expr import IntImm, PrimExpr, as_expr
from ..ir.module import IRModule
from ..relax.nodes import Function
from ..script.printer import script
from ..target import Target
from . import llvm_ir as ll
from .host.contexts import HostRuntime
from .host.ffi import FfiEntries
from .host.frames import Slot, frame_of, tensor_infos
from .linked import linked_functions
from .values import I8

METADATA_SYMBOL = "__mlc_metadata"
FORMAT = "mlc-lib-3"


def emit_host(mod: IRModule, runtime: HostRuntime, target: Target, metadata: Mapping[str, Any]) -> str:
    """Emit the host's LLVM module, as text: the graph functions of a planned module, their entries and the metadata.

    LLVM does not optimize it: its functions check arguments and pass addresses, once per call.
    """
    runtime.packed.linked = frozenset(linked_functions(mod))
    entries = FfiEntries(runtime)
    for name, func in exported(mod).items():
        entries.emit_entry(name, func, runtime.emit_job(name, func))
    _metadata_symbol(runtime.module, {**metadata, **runtime.metadata, **describe(mod, target, runtime.host.target)})
    for function in runtime.module.functions:
        if not function.is_declaration:
            function.attributes.add("noinline")
            function.attributes.add("optnone")
    return str(runtime.module)


def exported(mod: IRModule) -> dict[str, Function]:
    """The graph functions that the library exports."""
    return {n: f for n, f in mod.of_type(Function).items() if not f.attrs.get("Primitive")}


def describe(mod: IRModule, target: Target, host: Target) -> dict[str, Any]:
    """The metadata of a module: functions with their tensors, targets, versions.

    host: the CPU that runs the library's entries; in the metadata only if it is not the target itself.
    """
    apart = {} if host == target else {"host": host.export()}
    return {
        **apart,
        "format": FORMAT,
        SUM_KEY: NO_SUM,
        "compiler_version": __version__,
        "llvm_version": ".".join(map(str, llvm.llvm_version_info)),
        "target": target.export(),
        "functions": {name: _signature(f) for name, f in exported(mod).items()},
    }


def _signature(func: Function) -> dict[str, Any]:
    """Inputs and outputs in the order in which the entry takes them, and their nesting for the caller.

    ``arguments`` (nested positions in ``inputs``) and ``result`` (nested ``{"output": position}``, ``{"input":
    position}``, ``{"shape": sizes}`` or ``{"value": size}``) are present when the caller's signature is nested.
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
    """Nested positions and sizes as JSON data."""
    if isinstance(nested, Mapping):
        return {key: _plain(value) for key, value in nested.items()}
    if isinstance(nested, Sequence):
        return [_plain(value) for value in nested]
    return _size(nested) if isinstance(nested, PrimExpr) else nested


def _describe(slot: Slot) -> dict[str, Any]:
    """A parameter as JSON data. A scalar has no ``shape``; its ``value`` is the symbolic size that it passes."""
    name = slot.var.name
    if slot.scalar is not None:
        return {"name": name, "dtype": slot.scalar, "value": slot.symbol.name if slot.symbol is not None else None}
    infos = tensor_infos(slot.var)
    if slot.is_table:
        return {"name": name, "shape": [len(infos)], "dtype": "int64", "table": True}
    return {"name": name, "shape": [_size(s) for s in infos[0].shape or ()], "dtype": infos[0].dtype}


def _size(size: PrimExpr) -> int | str:
    """A size as a number, or as text if it is symbolic."""
    return size.value if isinstance(size, IntImm) else script(size)


def _metadata_symbol(module: ll.Module, metadata: Mapping[str, Any]) -> None:
    raw = bytearray(json.dumps(metadata, ensure_ascii=True).encode() + b"\0")
    array = ll.ArrayType(I8, len(raw))
    symbol = ll.GlobalVariable(module, array, METADATA_SYMBOL)
    symbol.initializer = ll.Constant(array, raw)
    symbol.global_constant = True
