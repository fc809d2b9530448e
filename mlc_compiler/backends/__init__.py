"""The back ends, by kind of target. To add one, make a folder here and add a line to ``BACKENDS``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mlc_errors import MLCError

from ..codegen.emit import emit_host
from ..codegen.host.module import HostModule, new_module
from ..ir.module import IRModule
from ..target import Target, find_kind
from ..tir.intrinsics import tensor_intrins
from .base import Backend, Lowering
from .cpu import CpuBackend
from .cuda import CudaBackend

__all__ = [
    "BACKENDS",
    "Backend",
    "Lowering",
    "backend_of",
    "emit_llvm",
    "host_target",
    "register_backend",
    "unregister_backend",
]

BACKENDS: dict[str, Backend] = {backend.kind.name: backend for backend in (CpuBackend(), CudaBackend())}


def register_backend(backend: Backend) -> None:
    """Register a back end, so that ``Target(backend.kind.name)`` can be passed to ``build``.

    Raises MLCError when its kind, an alias or an instruction has the name of a registered one.
    """
    kind = backend.kind
    for name in (kind.name, *kind.aliases):
        if any(name in (other.kind.name, *other.kind.aliases) for other in BACKENDS.values()):
            raise MLCError(f"there is a kind of target {name!r} already", hint="unregister_backend removes one")
    for row in backend.instructions:
        if row.name in tensor_intrins():
            raise MLCError(f"there is a tensor intrinsic {row.name!r} already")
    BACKENDS[kind.name] = backend


def unregister_backend(name: str) -> None:
    """Unregister the back end of the kind ``name`` and its instructions. Raises UnsupportedError for unknown names."""
    del BACKENDS[find_kind(name).name]


def backend_of(target: Target) -> Backend:
    """The back end of a target."""
    return BACKENDS[target.kind]


def host_target(target: Target) -> Target:
    """The CPU target of the library's host code; ``target`` itself if it is a CPU."""
    return backend_of(target).host_target(target)


def emit_llvm(
    mod: IRModule, target: Target, metadata: Mapping[str, Any] | None = None, device_texts: dict[str, str] | None = None
) -> Iterator[str]:
    """Emit the LLVM modules of a lowered and planned module, as text: kernels first, then those of the host.

    device_texts: receives the code of devices other than the host, see ``HostRuntime.device_texts``.
    """
    backend = backend_of(target)
    yield from backend.emit_kernels(mod, target)
    host = HostModule(new_module(host_target(target)), host_target(target))
    runtime = backend.host_runtime(host, mod, target)
    if device_texts is not None:
        device_texts.update(runtime.device_texts)
    yield emit_host(mod, runtime, target, metadata or {})
    yield from runtime.further_modules()
