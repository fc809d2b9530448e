"""A library of two kernels in hand-written PTX, with the host code of the CUDA back end."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mlc_compiler import parse
from mlc_compiler.backends.cuda.launches import Images, Kernel, Launch
from mlc_compiler.backends.cuda.runtime import CudaRuntime
from mlc_compiler.codegen.emit import emit_host
from mlc_compiler.codegen.host.module import HostModule, new_module
from mlc_compiler.codegen.link import link_shared
from mlc_compiler.codegen.native import compile_modules
from mlc_compiler.ir.module import IRModule
from mlc_compiler.target import Target
from mlc_runtime.library import Library

THREADS = 64

# y[i] = a * x[i] and y[i] = x[i] + y[i], for i < n.
SCALE = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 x, .param .u64 y, .param .f32 a, .param .u64 n)
{
    .reg .pred %p<2>;
    .reg .f32 %f<4>;
    .reg .b32 %r<5>;
    .reg .b64 %rd<8>;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    cvt.u64.u32 %rd1, %r4;
    ld.param.u64 %rd2, [n];
    setp.ge.u64 %p1, %rd1, %rd2;
    @%p1 bra END;
    ld.param.u64 %rd3, [x];
    ld.param.u64 %rd4, [y];
    ld.param.f32 %f1, [a];
    shl.b64 %rd5, %rd1, 2;
    add.s64 %rd6, %rd3, %rd5;
    add.s64 %rd7, %rd4, %rd5;
    ld.global.f32 %f2, [%rd6];
    mul.f32 %f3, %f1, %f2;
    st.global.f32 [%rd7], %f3;
END:
    ret;
}
"""
ADD = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 x, .param .u64 y, .param .u64 n)
{
    .reg .pred %p<2>;
    .reg .f32 %f<4>;
    .reg .b32 %r<5>;
    .reg .b64 %rd<8>;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    cvt.u64.u32 %rd1, %r4;
    ld.param.u64 %rd2, [n];
    setp.ge.u64 %p1, %rd1, %rd2;
    @%p1 bra END;
    ld.param.u64 %rd3, [x];
    ld.param.u64 %rd4, [y];
    shl.b64 %rd5, %rd1, 2;
    add.s64 %rd6, %rd3, %rd5;
    add.s64 %rd7, %rd4, %rd5;
    ld.global.f32 %f1, [%rd6];
    ld.global.f32 %f2, [%rd7];
    add.f32 %f3, %f1, %f2;
    st.global.f32 [%rd7], %f3;
END:
    ret;
}
"""

# main(x, a) = a * x + 3 * [1, 2, …]; the sum is made in the result. The constant has four elements.
MODULE = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def scaled(var_x: T.handle, var_y: T.handle, a: T.float32):
        n = T.int64()
        x = T.match_buffer(var_x, (n,), "float32")
        y = T.match_buffer(var_y, (n,), "float32")
        T.evaluate(T.call_intrin("handle", "cuda.launch", "scale", (n + 63) // 64, T.int64(1), T.int64(1), T.int64(64),
            T.int64(1), T.int64(1), T.int64(0), T.call_intrin("handle", "address_of", x[0]),
            T.call_intrin("handle", "address_of", y[0]), a, n))

    @T.prim_func(private=True)
    def added(var_x: T.handle, var_y: T.handle):
        n = T.int64()
        x = T.match_buffer(var_x, (n,), "float32")
        y = T.match_buffer(var_y, (n,), "float32")
        if n > 0:
            T.evaluate(T.call_intrin("handle", "cuda.launch", "add", (n + 63) // 64, T.int64(1), T.int64(1),
                T.int64(64), T.int64(1), T.int64(1), T.int64(0), T.call_intrin("handle", "address_of", x[0]),
                T.call_intrin("handle", "address_of", y[0]), n))

    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")) -> R.Tuple():
        n = T.int64()
        R.func_attr({"num_input": 1, "num_outputs": 1, "workspace_bytes": n * 4})
        cls = Module
        with R.dataflow():
            ws: R.Tensor((n,), "float32") = R.builtin.alloc_tensor(
                R.shape([n]), dtype="float32", offset=0, nbytes=n * 4
            )
            _ = cls.scaled(x, ws, R.prim_value(T.float32(2)), R.prim_value(n))
            _ = cls.scaled(ws, y, R.prim_value(T.float32(4)), R.prim_value(n))
            _ = cls.added(ws, y, R.prim_value(n))
            R.output()
        return R.tuple()

    @R.function
    def with_constant(y: R.Tensor((4,), "float32")) -> R.Tuple():
        R.func_attr({"num_input": 0, "num_outputs": 1})
        cls = Module
        with R.dataflow():
            _ = cls.scaled(
                R.const([1.0, 2.0, 3.0, 4.0], "float32"), y, R.prim_value(T.float32(3)), R.prim_value(T.int64(4))
            )
            R.output()
        return R.tuple()
"""


def two_kernels(
    path: Path,
    *,
    shared_bytes: int = 0,
    pdl: bool = False,
    arch: str = "sm_80",
    names: tuple[str, ...] = ("scale", "add"),
) -> Library:
    """``main(x)`` = 10 x by three launches, and ``with_constant()`` = [3, 6, 9, 12], each kernel in its own module."""
    module = parse(MODULE)
    assert isinstance(module, IRModule)
    images = [Images(text.replace("sm_80", arch), {"sm_80": b"\x7fELF of no kernel"}) for text in (SCALE, ADD)]
    launches = [Launch(name, (THREADS, 1, 1), shared_bytes, pdl) for name in names]
    kernels = {launch.name: Kernel(launch, i) for i, launch in enumerate(launches)}
    cpu = Target("cpu")
    runtime = CudaRuntime(HostModule(new_module(cpu), cpu), module, images, kernels)
    text = emit_host(module, runtime, Target("cuda:sm_80"), {})
    link_shared(compile_modules([text], cpu).objects, path, cpu)
    return Library(path)


def numbers(count: int) -> np.ndarray:
    """float32 [count], none of which is 0."""
    return np.arange(1, count + 1, dtype=np.float32)
