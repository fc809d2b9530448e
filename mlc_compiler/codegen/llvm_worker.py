"""Worker process for LLVM: ``main`` reads requests from standard input and writes replies to standard output.

LLVM aborts the process on fatal errors; a worker process turns that into an exception. This module imports only
llvmlite, so that a worker starts quickly.
"""

from __future__ import annotations

import pickle
import struct
import sys
from dataclasses import dataclass
from typing import IO

import llvmlite.binding as llvm

ENTRY = "__tvm_ffi_"
LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Request:
    """One LLVM module to compile: its text, target names, optimization level, and what to return.

    prefix: prefix of the names of the library's symbols, see ``prefixed``.
    """

    text: str
    triple: str
    cpu: str
    features: str
    level: int = 3
    assembly: bool = False
    llvm_ir: bool = False
    object_code: bool = True
    prefix: str = ""


@dataclass(frozen=True)
class Reply:
    """Object code and the requested texts, or LLVM's error message."""

    object_code: bytes = b""
    assembly: str | None = None
    llvm_ir: str | None = None
    error: str | None = None


_initialized = False


def initialize() -> None:
    """Initialize LLVM's targets, once per process."""
    global _initialized
    if not _initialized:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        _initialized = True


def target_machine(triple: str, cpu: str, features: str, level: int = 3) -> llvm.TargetMachine:
    initialize()
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=level, reloc="pic", codemodel="default"
    )


def optimize(text: str, machine: llvm.TargetMachine, level: int = 3) -> llvm.ModuleRef:
    """Parse, verify and optimize one module. Raises RuntimeError for text that is not a valid module."""
    return _optimized(_parsed(text), machine, level)


def _parsed(text: str) -> llvm.ModuleRef:
    module = llvm.parse_assembly(text)
    module.verify()
    return module


def _optimized(module: llvm.ModuleRef, machine: llvm.TargetMachine, level: int) -> llvm.ModuleRef:
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = True
    options.slp_vectorization = False
    options.loop_unrolling = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


def compile_text(request: Request) -> Reply:
    """Optimize and compile one module; one whose functions all are ``optnone``, at level 0."""
    initialize()
    try:
        module = _parsed(request.text)
        defined = [f for f in module.functions if not f.is_declaration]
        level = 0 if defined and all(map(_is_optnone, defined)) else request.level
        machine = target_machine(request.triple, request.cpu, request.features, level)
        module = _optimized(module, machine, level)
        if request.prefix:
            _rename(module, request.prefix)
    except RuntimeError as e:
        return Reply(error=str(e))
    return Reply(
        machine.emit_object(module) if request.object_code else b"",
        machine.emit_assembly(module) if request.assembly else None,
        str(module) if request.llvm_ir else None,
    )


def _is_optnone(function: llvm.ValueRef) -> bool:
    return any(b"optnone" in group.split() for group in function.attributes)


def prefixed(name: str, prefix: str) -> str:
    """The name of a symbol in a library with a prefix: ``__tvm_ffi_main`` becomes ``__tvm_ffi_PREFIXmain``."""
    return ENTRY + prefix + name.removeprefix(ENTRY) if name.startswith(ENTRY) else prefix + name


def _rename(module: llvm.ModuleRef, prefix: str) -> None:
    """Rename the symbols that the module defines, and hidden ones, which other modules of the library define."""
    for value in (*module.functions, *module.global_variables):
        if not value.is_declaration or value.visibility == llvm.Visibility.hidden:
            value.name = prefixed(value.name, prefix)


def send(stream: IO[bytes], message: object) -> None:
    data = pickle.dumps(message)
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> object:
    """The next message. Raises EOFError when the other end is closed."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    size = LENGTH.unpack(head)[0]
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return pickle.loads(data)


def main() -> None:
    """Serve requests until standard input is closed."""
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    initialize()
    while True:
        try:
            request = receive(requests)
        except EOFError:
            return
        assert isinstance(request, Request)
        send(replies, compile_text(request))
