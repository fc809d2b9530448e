"""Small kernels for the simulator's tests."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt

from mlc_compiler.sim import Counts, Memory, parse_ptx, run

Array = npt.NDArray[Any]
TRIPLE = "nvptx64-nvidia-cuda"


def ptx(body: str, parameters: int = 1, declarations: str = "", target: str = "sm_90a") -> str:
    """A module with one kernel ``k`` of 64-bit parameters, loaded into %rd0, %rd1, ...; %tid.x is in %t."""
    names = [f"k_{i}" for i in range(parameters)]
    loads = "\n".join(f"ld.param.b64 %rd{i}, [{name}];" for i, name in enumerate(names))
    return f"""
.version 8.4
.target {target}
.address_size 64
{declarations}
.visible .entry k({", ".join(f".param .u64 {name}" for name in names)})
{{
.reg .b64 %rd<64>; .reg .b32 %r<256>; .reg .b16 %h<32>; .reg .pred %p<16>; .reg .f32 %f<256>; .reg .f64 %fd<16>;
.reg .b32 %t;
{loads}
mov.u32 %t, %tid.x;
{body}
ret;
}}
"""


def from_llvm(ir: str, cpu: str = "sm_80", features: str = "+ptx71") -> str:
    """The PTX that LLVM's NVPTX back end generates for a module."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=cpu, features=features, opt=3)
    module = llvm.parse_assembly(ir)
    module.triple, module.data_layout = TRIPLE, str(machine.target_data)
    text: str = machine.emit_assembly(module)
    return text


def launch(text: str, *arrays: Array | int, grid: int = 1, block: int = 32, shared_bytes: int = 0) -> Counts:
    """Runs kernel ``k``; arrays are copied to the device and back."""
    memory = Memory()
    args = [memory.allocate(a) if isinstance(a, np.ndarray) else a for a in arrays]
    counts = run(parse_ptx(text).kernels["k"], (grid,), (block,), args, memory, shared_bytes)
    for array, address in zip(arrays, args):
        if isinstance(array, np.ndarray):
            array[...] = memory.view(address, array.dtype, array.shape)
    return counts


def apply(code: str, result: npt.DTypeLike, *operands: Array) -> Array:
    """Run one instruction over all elements: it reads %a, %b, %c and writes %d, registers of the arrays' element
    sizes."""
    out = np.zeros(len(operands[0]), result)
    lines = []
    for number, (letter, array) in enumerate([*zip("abc", operands), ("d", out)]):
        size = array.dtype.itemsize
        lines.append(f".reg .b{max(size * 8, 16)} %{letter}; .reg .b64 %at_{letter};")
        lines.append(f"mul.wide.u32 %at_{letter}, %t, {size}; add.s64 %at_{letter}, %at_{letter}, %rd{number};")
        if letter != "d":
            lines.append(f"ld.global.b{size * 8} %{letter}, [%at_{letter}];")
    lines += [code, f"st.global.b{out.dtype.itemsize * 8} [%at_d], %d;"]
    launch(ptx("\n".join(lines), len(operands) + 1), *operands, out, block=len(out))
    return out
