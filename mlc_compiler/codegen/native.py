"""LLVM modules to optimized machine code."""

from __future__ import annotations

from dataclasses import dataclass

import llvmlite.binding as llvm

from ..target import Target, initialize_llvm


@dataclass(frozen=True)
class Native:
    """Optimized code of one module: an object file, and on request its assembly and LLVM text."""

    object_code: bytes
    assembly: str | None = None
    llvm_ir: str | None = None


def machine(target: Target, level: int = 3) -> llvm.TargetMachine:
    initialize_llvm()
    triple = llvm.Target.from_triple(target.triple)
    return triple.create_target_machine(
        cpu=target.cpu, features=target.features, opt=level, reloc="pic", codemodel="default"
    )


def optimize(text: str, target: Target, level: int = 3) -> tuple[llvm.ModuleRef, llvm.TargetMachine]:
    """Parse, verify and run LLVM's optimizer over a module given as text."""
    tm = machine(target, level)
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = True
    options.slp_vectorization = False
    options.loop_unrolling = True
    builder = llvm.create_pass_builder(tm, options)
    builder.getModulePassManager().run(module, builder)
    return module, tm


def compile_module(
    text: str, target: Target, *, assembly: bool = False, llvm_ir: bool = False, level: int = 3
) -> Native:
    """Machine code of a module given as LLVM text."""
    module, tm = optimize(text, target, level)
    return Native(
        tm.emit_object(module),
        tm.emit_assembly(module) if assembly else None,
        str(module) if llvm_ir else None,
    )
