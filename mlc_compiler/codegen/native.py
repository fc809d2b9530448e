"""Compile LLVM modules to optimized machine code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm

from mlc_errors import STEP_ADDRESSES, check_address_space

from ..target import Target
from . import llvm_worker
from .arithmetic import CodegenError
from .llvm_worker import Reply, Request, target_machine
from .workers import Workers, shared


@dataclass(frozen=True)
class Native:
    """Compiled modules: an object file for each, and on request their assembly and LLVM IR."""

    objects: tuple[bytes, ...]
    assembly: str | None = None
    llvm_ir: str | None = None


def machine(target: Target, level: int = 3) -> llvm.TargetMachine:
    return target_machine(target.triple, target.cpu, target.features, level)


def optimize(text: str, target: Target, level: int = 3) -> tuple[llvm.ModuleRef, llvm.TargetMachine]:
    """Optimize a module in this process; returns it and its target machine."""
    tm = machine(target, level)
    return llvm_worker.optimize(text, tm, level), tm


@cache
def data_layout(target: Target) -> str:
    """LLVM's data layout string of the target."""
    return str(machine(target).target_data)


def compile_modules(
    texts: Iterable[str],
    target: Target,
    *,
    assembly: bool = False,
    llvm_ir: bool = False,
    level: int = 3,
    prefix: str = "",
    workers: Workers | None = None,
) -> Native:
    """Compile modules given as LLVM IR. LLVM runs in worker processes, while ``texts`` is still being generated.

    prefix: prefix of the names of all symbols, see ``llvm_worker.prefixed``; also in assembly and LLVM IR. Raises
    CodegenError when LLVM rejects a module or aborts.
    """
    machine_names = (target.triple, target.cpu, target.features)
    replies = _replies(
        (Request(text, *machine_names, level, assembly, llvm_ir, prefix=prefix) for text in texts), workers
    )
    return Native(
        tuple(r.object_code for r in replies),
        "\n".join(r.assembly or "" for r in replies) if assembly else None,
        "\n".join(r.llvm_ir or "" for r in replies) if llvm_ir else None,
    )


def assemble_modules(texts: Iterable[str], target: Target, *, llvm_ir: bool = False, level: int = 3) -> list[str]:
    """Compile modules given as LLVM IR to assembly (PTX on NVPTX), or to optimized LLVM IR.

    Raises CodegenError when LLVM rejects a module or aborts.
    """
    machine_names = (target.triple, target.cpu, target.features)
    requests = (Request(text, *machine_names, level, not llvm_ir, llvm_ir, object_code=False) for text in texts)
    return [(reply.llvm_ir if llvm_ir else reply.assembly) or "" for reply in _replies(requests, None)]


def _replies(requests: Iterable[Request], workers: Workers | None) -> list[Reply]:
    pool = workers or shared()
    futures = []
    for request in requests:
        check_address_space("compiling", STEP_ADDRESSES)
        futures.append(pool.submit(request))
    replies = [f.result() for f in futures]
    for reply in replies:
        if reply.error is not None:
            raise CodegenError("LLVM refuses the generated code", where=reply.error.splitlines()[:8])
    return replies
