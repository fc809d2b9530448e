"""Device functions to PTX and machine code (cubins)."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, files
from typing import Any

from mlc_scratch import temporary_folder

from ...codegen import llvm_ir as ll
from ...codegen.arithmetic import CodegenError
from ...codegen.host.module import split_modules
from ...codegen.native import assemble_modules
from ...ir.module import IRModule
from ...target import Target
from ...tir.nodes import PrimFunc
from .emitter import emit_device_function
from .instructions.nvvm import check_instructions
from .launches import KERNEL, Images, Kernel
from .machine import capability
from .passes.split_kernels import launch_of

INSTRUCTIONS_IN_A_MODULE = 2000  # amortizes the cost of a module, and leaves modules for every core


@dataclass(frozen=True)
class DeviceCode:
    """The device code of a library. kernels: by symbol. without_machine_code: the reason for missing cubins, or ""."""

    images: Sequence[Images]
    kernels: Mapping[str, Kernel]
    without_machine_code: str = ""

    def describe(self, target: Target) -> dict[str, Any]:
        """The architectures of PTX and machine code, and the reason if there is no machine code, as JSON values."""
        machine_code = sorted({arch for image in self.images for arch in image.cubins}, key=capability)
        found = {"ptx": target.cpu, "machine_code": machine_code}
        return found | ({"without_machine_code": self.without_machine_code} if self.without_machine_code else {})


def compile_kernels(mod: IRModule, target: Target) -> DeviceCode:
    """Compile the kernels of a module after ``SplitKernels``. Raises CodegenError when LLVM or the assembler fails."""
    kernels: dict[str, Kernel] = {}
    ptx = assemble_modules(llvm_modules(mod, target, kernels), target)
    assemble = find_assembler()
    names = target.attrs["arch"] if assemble else ()
    assert isinstance(names, tuple)
    images = [Images(text, {arch: assemble(text, arch).code for arch in names} if assemble else {}) for text in ptx]
    missing = "" if assemble else "none of ptxas and the packages nvidia-cuda-nvcc and nvidia-nvjitlink is installed"
    return DeviceCode(images, kernels, missing)


def llvm_modules(mod: IRModule, target: Target, kernels: dict[str, Kernel]) -> Iterator[str]:
    """Emit the device functions as LLVM modules, as text; adds their names and launches to ``kernels``."""
    device = [(name, func) for name, func in mod.of_type(PrimFunc).items() if func.attrs.get(KERNEL)]
    modules = split_modules(device, target, INSTRUCTIONS_IN_A_MODULE, partial(_emit, target))
    for number, (module, names) in enumerate(modules):
        check_instructions(module, target)
        kernels.update({name: Kernel(launch_of(name, mod.of_type(PrimFunc)[name]), number) for name in names})
        yield str(module)


def _emit(target: Target, module: ll.Module, name: str, func: PrimFunc) -> ll.Function:
    return emit_device_function(module, func, launch_of(name, func), target)


# -- assemblers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Resources:
    """Resources of a kernel, as the assembler reports: registers per thread; bytes of stack, spills, shared memory."""

    registers: int
    stack_bytes: int
    spill_bytes: int
    shared_bytes: int


@dataclass(frozen=True)
class Assembled:
    """Machine code for an architecture, and the resources of its kernels by name."""

    code: bytes
    resources: Mapping[str, Resources]


Assembler = Callable[[str, str], Assembled]


def find_assembler() -> Assembler | None:
    """``assemble(ptx, arch)`` by ``ptxas``, or else by nvJitLink; None if neither is installed.

    For sm_80 and sm_86, nvJitLink 13.0 keeps more values in registers than fit, and spills them; ptxas 13.0 does not.
    """
    ptxas = _find_ptxas()
    if ptxas is not None:
        return partial(_by_ptxas, ptxas)
    try:
        from cuda.bindings import nvjitlink

        nvjitlink.version()
    except (ImportError, RuntimeError):
        return None
    return _by_nvjitlink


def _find_ptxas() -> str | None:
    """The path of ``ptxas`` from the package ``nvidia-cuda-nvcc``, or else from the search path."""
    try:
        listed = files("nvidia-cuda-nvcc") or []
    except PackageNotFoundError:
        listed = []
    found = next((str(f.locate()) for f in listed if f.name == "ptxas"), None)
    return found or shutil.which("ptxas")


def _by_nvjitlink(ptx: str, arch: str) -> Assembled:
    """Assemble by nvJitLink. Raises CodegenError, with the assembler's message, for PTX that it refuses."""
    from cuda.bindings import nvjitlink

    text = ptx.encode()
    handle = nvjitlink.create(2, [f"-arch={arch}", "-verbose"])
    try:
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, text, len(text), "kernels")
        nvjitlink.complete(handle)
        code = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, code)
        log = bytearray(nvjitlink.get_info_log_size(handle))
        nvjitlink.get_info_log(handle, log)
    except nvjitlink.nvJitLinkError:
        log = bytearray(nvjitlink.get_error_log_size(handle))
        nvjitlink.get_error_log(handle, log)
        raise _refused(arch, log.decode(errors="replace")) from None
    finally:
        nvjitlink.destroy(handle)
    return Assembled(bytes(code), _resources(log.decode(errors="replace")))


def _by_ptxas(program: str, ptx: str, arch: str) -> Assembled:
    with temporary_folder("ptxas") as folder:
        source, output = folder / "kernels.ptx", folder / "kernels.cubin"
        source.write_text(ptx)
        command = [program, "-v", f"-arch={arch}", "-o", str(output), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise _refused(arch, done.stderr)
        return Assembled(output.read_bytes(), _resources(done.stderr))


def _refused(arch: str, log: str) -> CodegenError:
    return CodegenError(f"the assembler refuses the PTX for {arch}", where=log.strip().splitlines()[:8])


_ENTRY = re.compile(r"Compiling entry function '(\S+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


def _resources(log: str) -> dict[str, Resources]:
    """The resources of each kernel, from the report of ``ptxas -v``."""
    found: dict[str, Resources] = {}
    for part in _ENTRY.split(log)[1:][0::2]:
        report = log.split(f"Compiling entry function '{part}'", 1)[1]
        stack, used = _STACK.search(report), _USED.search(report)
        if stack and used:
            spills = int(stack[2]) + int(stack[3])
            found[part] = Resources(int(used[1]), int(stack[1]), spills, int(used[2] or 0))
    return found
