"""Back ends by the name of their kind of target. A new one is a folder here and a line in the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..codegen.emit import emit_host
from ..codegen.host.module import HostModule, new_module
from ..ir.module import IRModule
from ..target import Target
from .base import Backend, Lowering
from .cpu import CpuBackend

__all__ = ["BACKENDS", "Backend", "Lowering", "backend_of", "emit_llvm"]

BACKENDS: dict[str, Backend] = {backend.kind.name: backend for backend in (CpuBackend(),)}


def backend_of(target: Target) -> Backend:
    """The back end of a target."""
    return BACKENDS[target.kind]


def emit_llvm(mod: IRModule, target: Target, metadata: Mapping[str, Any] | None = None) -> Iterator[str]:
    """The LLVM modules of a lowered and planned module, as text: some with kernels, then the host's."""
    backend = backend_of(target)
    yield from backend.emit_kernels(mod, target)
    host_target = backend.host_target(target)
    host = HostModule(new_module(host_target), host_target)
    yield emit_host(mod, backend.host_runtime(host, mod, target), target, metadata or {})
