"""The table of NVVM intrinsics: rejected calls, and the PTX version that a module requires."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from mlc_compiler.backends.cuda.instructions.nvvm import check_instructions, emit, lowest_ptx
from mlc_compiler.codegen import llvm_ir as ll
from mlc_compiler.codegen.arithmetic import CodegenError
from mlc_compiler.codegen.values import VOID, i32
from tests.compiler.backends.cuda.instructions.kernels import ROWS, Kernel, row_kernel


@dataclass(frozen=True)
class Gpu:
    """A target with the attributes that ``check_instructions`` reads."""

    extensions: tuple[str, ...]

    def has(self, name: str) -> bool:
        return name.startswith("ptx") or name in self.extensions


def test_an_instruction_that_the_gpu_lacks_is_refused_by_name() -> None:
    module = row_kernel(ROWS["cuda.redux.add.s32"]).module
    check_instructions(module, Gpu(("sm_70", "sm_75", "sm_80")))
    with pytest.raises(CodegenError, match="llvm.nvvm.redux.sync.add'?: it needs sm_80"):
        check_instructions(module, Gpu(("sm_70", "sm_75")))


def test_inline_assembly_is_refused_by_name() -> None:
    module = row_kernel(ROWS["cuda.tanh.approx.f32"]).module
    with pytest.raises(CodegenError, match="tanh.approx.f32'?: it needs sm_75"):
        check_instructions(module, Gpu(("sm_70",)))


def test_an_intrinsic_outside_the_table_is_refused() -> None:
    kernel = Kernel(0)
    ll.Function(kernel.module, ll.FunctionType(VOID, []), "llvm.nvvm.made.up")
    with pytest.raises(CodegenError, match="llvm.nvvm.made.up"):
        check_instructions(kernel.module, Gpu(("sm_90a",)))


def test_arguments_of_other_types_are_refused() -> None:
    kernel = Kernel(0)
    with pytest.raises(CodegenError, match=r"shfl.sync.bfly.f32: the arguments are .i32, i32.* expected .*float"):
        emit(kernel.b, "llvm.nvvm.shfl.sync.bfly.f32", [i32(-1), i32(0), i32(1), i32(31)])


def test_an_operand_in_the_wrong_memory_is_refused() -> None:
    kernel = Kernel(2)
    with pytest.raises(CodegenError, match=r"cuda.cp_async.16.f16: the operand 'dst' is not in shared memory"):
        kernel.run("cuda.cp_async.16.f16", kernel.pointers)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("cuda.shfl.xor.f32", 60),
        ("cuda.cvt.bf16x2.f32x2", 70),
        ("cuda.griddep.wait", 78),
        ("cuda.prefetch", 80),
        ("cuda.bulk_copy.1024.f16", 80),
        ("cuda.tensor_copy.128.bf16", 80),
        ("cuda.mma.m16n8k32.f32.e4m3", 84),
    ],
)
def test_the_lowest_version_of_ptx(name: str, version: int) -> None:
    assert lowest_ptx(row_kernel(ROWS[name]).module) == version
