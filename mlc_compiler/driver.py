"""Compile a module to a shared library: passes, code generation, linking."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from mlc_errors import InternalError, UnsupportedError

from .backends import emit_llvm, host_target
from .codegen.link import find_linker
from .codegen.linked import linked_objects
from .codegen.native import compile_modules
from .codegen.outputs import ASSEMBLY, LLVM_IR, check_output, write_output
from .codegen.workers import shared
from .ir.forks import BackgroundChecks
from .ir.garbage import paused_collections
from .ir.module import IRModule
from .ir.recursion import deep_recursion
from .optimization import Optimization
from .passes.observe_kernels import ObserveKernels
from .pipeline import PhaseTimes, pipeline, run_passes
from .relax.nodes import Function
from .schedules.rule import Rule
from .target import Target, available_cores
from .tir.nodes import PrimFunc
from .verifier import VerifyError

Result = TypeVar("Result")
_EVERYTHING = Optimization()


@dataclass(frozen=True)
class Built:
    """A built library: its path, the lowered module, seconds by phase, and the texts requested with ``emit``.

    texts: generated code by kind: ``llvm`` and ``asm`` of the host; GPU code by file suffix, such as ``sm_80.ptx``.
    """

    output: Path
    mod: IRModule
    num_kernels: int
    seconds: Mapping[str, float]
    texts: Mapping[str, str] = field(default_factory=dict)


@deep_recursion
@paused_collections()
def build_library(
    mod: IRModule,
    target: Target,
    output: Path,
    *,
    optimization: Optimization = _EVERYTHING,
    first_rules: Sequence[Rule] = (),
    observe: ObserveKernels | None = None,
    prefix: str = "",
    metadata: Callable[[IRModule], Mapping[str, Any]] = lambda _: {},
    dump: Path | None = None,
    emit: tuple[str, ...] = (),
    progress: Callable[[str], None] = lambda _: None,
    check: Callable[[IRModule], None] | None = None,
) -> Built:
    """Compile ``mod`` for ``target`` into ``output``, whose suffix selects the format, see ``write_output``.

    first_rules, observe: see ``pipeline``. prefix: symbol prefix of a static library, so that several can be linked
    into one program. metadata: computes, from the lowered module, the metadata stored in the library. dump: a folder
    for the module's text after each pass. emit: ``llvm`` and ``asm`` keep the optimized LLVM IR and the assembly of the
    host, ``ptx`` the code of a GPU. progress: called with the name of each phase as it starts. check: called with the
    module after each pass; the pipeline itself verifies the input and the result. Raises MLCError for a module that
    cannot be compiled, InternalError for one that is not well formed, and ResourceError when there is no linker.
    """
    check_output(output, prefix)
    times, host = PhaseTimes(), host_target(target)
    find_linker(host.arch)  # fail early
    progress("passes")
    passes = pipeline(target, optimization, first_rules, observe)
    shared().start(_most_kernels(mod))
    with _internal_errors(), BackgroundChecks(available_cores()) as checks:
        lowered = run_passes(mod, passes, times=times, dump=dump, check=check, checks=checks)
        linked = linked_objects(lowered, target, host)
        progress("code generation")
        device_texts: dict[str, str] = {}
        modules = emit_llvm(lowered, target, metadata(lowered), device_texts)
        assembly, llvm_ir = "asm" in emit or output.suffix == ASSEMBLY, "llvm" in emit or output.suffix == LLVM_IR
        native = _timed(
            times, "codegen", lambda: compile_modules(modules, host, assembly=assembly, llvm_ir=llvm_ir, prefix=prefix)
        )
    progress("linking")
    _timed(times, "link", lambda: write_output(replace(native, objects=(*native.objects, *linked)), output, host))
    texts = {k: t for k, t in (("asm", native.assembly), ("llvm", native.llvm_ir)) if t is not None and k in emit}
    texts |= device_texts if "ptx" in emit else {}
    return Built(output, lowered, len(lowered.of_type(PrimFunc)), times.seconds, texts)


@deep_recursion
def native_text(mod: IRModule, target: Target, kind: str, optimization: Optimization = _EVERYTHING) -> str:
    """The code generated for ``mod`` as text; ``kind`` is ``llvm`` (optimized LLVM IR), ``asm`` (assembly) or ``ptx``.

    The first two are host code. Raises UnsupportedError for ``ptx`` when the target is not an NVIDIA GPU.
    """
    device_texts: dict[str, str] = {}
    with _internal_errors():
        lowered = run_passes(mod, pipeline(target, optimization))
    modules = emit_llvm(lowered, target, device_texts=device_texts)
    if kind == "ptx":
        *_, _ = modules
        if not device_texts:
            raise UnsupportedError(f"target {target} has no PTX", hint="name an NVIDIA GPU, as cuda:sm_90a")
        return "\n".join(device_texts.values())
    native = compile_modules(modules, host_target(target), assembly=kind == "asm", llvm_ir=kind == "llvm")
    text = {"asm": native.assembly, "llvm": native.llvm_ir}[kind]
    assert text is not None
    return text


@contextmanager
def _internal_errors() -> Iterator[None]:
    """Context manager that raises a VerifyError as an InternalError."""
    try:
        yield
    except VerifyError as error:
        raise InternalError(error.message, where=error.where) from error


def _most_kernels(mod: IRModule) -> int:
    """An upper bound of the number of kernels: every binding and every tensor function makes one at most."""
    return len(mod.of_type(PrimFunc)) + sum(len(func.bindings) for func in mod.of_type(Function).values())


def _timed(times: PhaseTimes, name: str, work: Callable[[], Result]) -> Result:
    start = time.perf_counter()
    result = work()
    times.add(name, time.perf_counter() - start)
    return result
