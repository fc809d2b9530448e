"""Device code: PTX of schedules, machine code by both assemblers, resource limits of a block."""

from __future__ import annotations

import pytest

from mlc_compiler import emit_ptx, parse
from mlc_compiler.backends.cuda import images
from mlc_compiler.backends.cuda.images import DeviceCode, compile_kernels, find_assembler
from mlc_compiler.backends.cuda.machine import ARCHITECTURES
from mlc_compiler.codegen.arithmetic import CodegenError
from mlc_compiler.pipeline import entries, pipeline, run_passes
from mlc_compiler.target import Target

PRODUCT = """
@R.function
def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 48), "float32")):
    with R.dataflow():
        y = R.nn.relu(R.matmul(x, w))
        R.output(y)
    return y
"""
REVERSED = """
@T.prim_func
def main(a: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32")):
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        with T.decl_buffer(({size},), "float32", scope="shared") as tile:
            for tx in T.thread_binding(64, thread="threadIdx.x"):
                tile[tx] = a[tx]
                b[tx] = tile[63 - tx]
"""


def compiled(text: str, target: Target) -> DeviceCode:
    return compile_kernels(run_passes(parse(text), (*entries(), *pipeline(target))), target)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_machine_code_for_every_architecture(arch: str) -> None:
    code = compiled(PRODUCT, Target(f"cuda:{arch}"))
    assert code.kernels
    for image in code.images:
        assert f".target {arch}" in image.ptx
        assert list(image.cubins) == [arch]
        assert image.cubins[arch].startswith(b"\x7fELF")


def test_machine_code_for_several_architectures_from_one_ptx() -> None:
    (image,) = compiled(PRODUCT, Target("cuda:sm_80,sm_90,sm_120")).images
    assert ".target sm_80" in image.ptx
    assert list(image.cubins) == ["sm_80", "sm_90", "sm_120"]
    assert len(set(image.cubins.values())) == 3


def test_without_an_assembler_there_is_only_ptx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "find_assembler", lambda: None)
    code = compiled(PRODUCT, Target("cuda:sm_80"))
    assert [image.cubins for image in code.images] == [{}]
    assert code.without_machine_code.startswith("none of ptxas and the packages nvidia-cuda-nvcc and nvidia-nvjitlink")


def test_resources_of_a_kernel() -> None:
    assemble = find_assembler()
    assert assemble is not None
    (found,) = assemble(emit_ptx(parse(REVERSED.format(size=64)), "cuda:sm_90a"), "sm_90a").resources.values()
    assert found.stack_bytes == found.spill_bytes == 0
    assert found.shared_bytes == 256
    assert 0 < found.registers <= 32


def test_both_assemblers_report_the_same() -> None:
    ptx = emit_ptx(parse(REVERSED.format(size=64)), "cuda:sm_80")
    program = images._find_ptxas()
    assert program is not None
    by_package, by_program = images._by_nvjitlink(ptx, "sm_80"), images._by_ptxas(program, ptx, "sm_80")
    assert by_package.resources == by_program.resources


def test_the_assembler_names_the_line_that_it_refuses() -> None:
    assemble = find_assembler()
    assert assemble is not None
    with pytest.raises(CodegenError, match="the assembler refuses the PTX for sm_80") as error:
        assemble(".version 7.0\n.target sm_80\n.address_size 64\n.entry k() { nonsense; }\n", "sm_80")
    assert any("line 4" in line for line in error.value.where)


def test_more_than_48_kib_of_shared_memory_are_dynamic() -> None:
    ptx = emit_ptx(parse(REVERSED.format(size=20_000)), "cuda:sm_80")
    assert ".extern .shared" in ptx
    assert ".extern .shared" not in emit_ptx(parse(REVERSED.format(size=10_000)), "cuda:sm_80")


def test_more_shared_memory_than_a_block_has_is_refused() -> None:
    with pytest.raises(CodegenError, match="needs 160000 bytes of shared memory; a block of sm_86 has at most 101376"):
        emit_ptx(parse(REVERSED.format(size=40_000)), "cuda:sm_86")


def test_a_block_of_too_many_threads_is_refused() -> None:
    text = """
    @T.prim_func
    def main(a: T.Buffer((2048,), "float32")):
        for tx in T.thread_binding(2048, thread="threadIdx.x"):
            a[tx] = T.float32(0.0)
    """
    with pytest.raises(CodegenError, match="a block has 2048 threads; expected at most 1024"):
        emit_ptx(parse(text), "cuda:sm_80")


def test_accesses_of_16_bytes_where_the_index_is_aligned() -> None:
    text = """
    @T.prim_func
    def main(a: T.Buffer((1024,), "float16"), b: T.Buffer((1024,), "float16"), c: T.Buffer((1032,), "float16")):
        for tx in T.thread_binding(128, thread="threadIdx.x"):
            for v in T.vectorized(8):
                b[tx * 8 + v] = a[tx * 8 + v]
            for v in T.vectorized(8):
                c[tx * 8 + v + 1] = a[tx * 8 + v]
    """
    ptx = emit_ptx(parse(text), "cuda:sm_80")
    assert "ld.global.v4.b32" in ptx or "ld.global.v4.u32" in ptx
    assert ptx.count("st.global.v4") == 1
    assert ptx.count("st.global.b16") == 8


CHAIN = """
@R.function
def main(x: R.Tensor((3, 64), "float32"), weights: R.Tuple(R.Tensor((64,), "float32"))):
    R.func_attr({"num_input": 1})
    with R.dataflow():
        w = weights[0]
        y = R.nn.rms_norm(R.nn.rms_norm(x, w, axes=[-1]), w, axes=[-1])
        R.output(y)
    return y
"""


def ptx_of_chain(arch: str) -> str:
    target = Target(f"cuda:{arch}")
    (image,) = compile_kernels(run_passes(parse(CHAIN), pipeline(target)), target).images
    return image.ptx


def test_kernels_wait_for_the_kernels_before_them_where_they_may_begin_early() -> None:
    ptx = ptx_of_chain("sm_90a")
    kernels = ptx.split(".visible .entry")[1:]
    for kernel in kernels:
        access = kernel.index("ld.global")
        assert kernel.index("griddepcontrol.launch_dependents") < kernel.index("griddepcontrol.wait") < access
    assert "griddepcontrol" not in ptx_of_chain("sm_80")


def test_what_another_kernel_may_write_is_not_read_through_the_incoherent_cache() -> None:
    """PTX ISA, ``ld.global.nc``: memory must be read-only for the kernel's duration, which overlaps the one before."""
    early, late = (ptx_of_chain(arch) for arch in ("sm_90a", "sm_80"))
    assert late.count("ld.global.nc") > early.count("ld.global.nc") > 0
