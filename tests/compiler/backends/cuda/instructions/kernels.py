"""Kernels of one instruction each: operands are copied from and to global memory; one warp or warpgroup executes it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from mlc_compiler.backends.cuda.instructions import INSTRUCTIONS
from mlc_compiler.backends.cuda.instructions.copies import TENSOR_COPY
from mlc_compiler.backends.cuda.instructions.nvvm import GENERIC, emit, lowest_ptx
from mlc_compiler.backends.cuda.tensor_maps import PARAMETER_ATTRIBUTES
from mlc_compiler.codegen import llvm_ir as ll
from mlc_compiler.codegen import values as v
from mlc_compiler.codegen.instructions import Operands
from mlc_compiler.codegen.llvm_worker import optimize, target_machine
from mlc_compiler.codegen.values import I8, I32, I64, i32
from mlc_compiler.ir import dtype as dt
from mlc_compiler.tir.intrinsics import Operand, TensorIntrin

GLOBAL = ll.PointerType(addrspace=1)
BULK = ("cuda.bulk_copy", TENSOR_COPY)
"""Beginnings of the names of copies that an mbarrier counts."""
ROWS = {row.name: row for row in INSTRUCTIONS}
LOWEST_PTX = {"sm_70": 60, "sm_75": 63, "sm_80": 70, "sm_89": 78, "sm_90": 78, "sm_90a": 80}


class Kernel:
    """Builder of a kernel in a module, which several kernels may share; ``b`` builds its body. maps: indices of the
    parameters that are tensor maps."""

    def __init__(
        self,
        parameters: int,
        scalars: int = 0,
        module: ll.Module | None = None,
        name: str = "kernel",
        maps: Sequence[int] = (),
    ):
        self.module = module if module is not None else new_module()
        places = [GENERIC if i in maps else GLOBAL for i in range(parameters)]
        self.function = ll.Function(self.module, ll.FunctionType(v.VOID, [*places, *[I64] * scalars]), name)
        for i in maps:
            self.function.args[i].attributes = set(PARAMETER_ATTRIBUTES)
        self.function.calling_convention = "ptx_kernel"
        self.b = ll.IRBuilder(self.function.append_basic_block("entry"))
        self.pointers = self.function.args[:parameters]
        self.scalars = self.function.args[parameters:]
        self.thread = emit(self.b, "llvm.nvvm.read.ptx.sreg.tid.x", [])

    def at(self, pointer: ll.Value, byte: ll.Value) -> ll.Value:
        return self.b.gep(pointer, [byte], source_etype=I8)

    def shared(self, nbytes: int) -> ll.Value:
        """Shared memory of the block, aligned to 1024 bytes."""
        name = f"{self.function.name}_shared{len(self.module.globals)}"
        array = ll.GlobalVariable(self.module, ll.ArrayType(I8, nbytes), name, addrspace=3)
        array.linkage, array.align = "internal", 1024
        array.initializer = ll.Constant(array.value_type, ll.Undefined)
        return array

    def registers(self, nbytes: int) -> ll.Value:
        with self.b.goto_entry_block():
            return self.b.alloca(ll.ArrayType(I8, nbytes), align=16)

    def copy(self, target: ll.Value, source: ll.Value, nbytes: int, unit: int) -> None:
        """Copy bytes as one thread, ``unit`` bytes at a time."""
        for at in range(0, nbytes, unit):
            value = self.b.load(self.at(source, i32(at)), align=unit, typ=ll.IntType(8 * unit))
            self.b.store(value, self.at(target, i32(at)), align=unit)

    def copy_together(self, target: ll.Value, source: ll.Value, nbytes: int, threads: int = 32) -> None:
        """Copy bytes with all threads, 4 bytes a thread at a time, and wait for all."""
        assert nbytes % 4 == 0
        for first in range(0, nbytes, 4 * threads):
            at = self.b.add(self.b.mul(self.thread, i32(4)), i32(first))
            with self.b.if_then(self.b.icmp_unsigned("<", at, i32(nbytes))):
                self.b.store(self.b.load(self.at(source, at), align=4, typ=I32), self.at(target, at), align=4)
        self.barrier()

    def barrier(self) -> None:
        emit(self.b, "llvm.nvvm.barrier.cta.sync.aligned.all", [i32(0)])

    @contextmanager
    def first_thread(self) -> Iterator[None]:
        with self.b.if_then(self.b.icmp_unsigned("==", self.thread, i32(0))):
            yield

    def run(self, name: str, places: Sequence[ll.Value], **scalars: ll.Value) -> None:
        """One instruction on operands at the given addresses."""
        row = ROWS[name]
        row.emit["cuda"](self.b, row, Operands(places, scalars))


def new_module() -> ll.Module:
    module = ll.Module(name="kernels")
    module.triple = "nvptx64-nvidia-cuda"
    return module


def to_ptx(module: ll.Module, sm: str) -> str:
    """The module's kernels as PTX, in the lowest version that has their instructions and ``sm``."""
    version = max(lowest_ptx(module), LOWEST_PTX[sm])
    machine = target_machine("nvptx64-nvidia-cuda", sm, f"+ptx{version}")
    module.data_layout = str(machine.target_data)
    return str(machine.emit_assembly(optimize(str(module), machine)))


def row_kernel(row: TensorIntrin, module: ll.Module | None = None, name: str = "kernel") -> Kernel:
    """A kernel ``(operands…, scalars…)`` of 32 threads that executes one instruction.

    An operand in registers, or of a single-thread instruction, is an array [32, elements per lane]; an operand that
    the threads share has its own shape. Asynchronous copies are complete when the kernel ends.
    """
    maps = [1] if row.name.startswith(TENSOR_COPY) else []
    kernel = Kernel(len(row.operands), len(row.scalars), module, name, maps)
    places = [_place(kernel, row, o, p) for o, p in zip(row.operands, kernel.pointers, strict=True)]
    scalars = {s: i32(1) if s == "pending" else value for s, value in zip(row.scalars, kernel.scalars, strict=True)}
    if row.name.startswith(BULK):
        _bulk_copy(kernel, row, places, scalars)
    else:
        kernel.run(row.name, places, **scalars)
    if row.name.startswith("cuda.cp_async") and row.operands:
        kernel.run("cuda.cp_async.commit", [])
        kernel.run("cuda.cp_async.wait", [], pending=i32(0))
    if row.operands:
        _write_back(kernel, row, places[0])
    kernel.b.ret_void()
    return kernel


def _bulk_copy(kernel: Kernel, row: TensorIntrin, places: Sequence[ll.Value], scalars: Mapping[str, ll.Value]) -> None:
    """Emit a bulk copy: the first thread initialises the barrier and starts the copy; all threads wait for its
    bytes."""
    barrier = places[2]
    with kernel.first_thread():
        kernel.run("cuda.mbarrier.init", [barrier], count=i32(1))
        kernel.run("cuda.fence.mbarrier_init", [])
        kernel.run("cuda.mbarrier.arrive_expect_tx", [barrier], bytes=i32(_lane_bytes(row, row.operands[0])))
        kernel.run(row.name, places, **scalars)
    kernel.barrier()
    kernel.run("cuda.mbarrier.wait", [barrier], parity=i32(0))


def _lane_bytes(row: TensorIntrin, operand: Operand) -> int:
    return (
        operand.elements // (row.lanes if operand.per_lane or operand.scope == "warp" else 1) * dt.nbytes(operand.dtype)
    )


def _of_thread(kernel: Kernel, row: TensorIntrin, operand: Operand, pointer: ll.Value) -> ll.Value:
    return kernel.at(pointer, kernel.b.mul(kernel.thread, i32(_lane_bytes(row, operand))))


def is_uniform(row: TensorIntrin, operand: Operand) -> bool:
    """Whether all threads pass the same address of an operand."""
    shared = row.lanes > 1 or operand.name == "bar" or row.name.startswith(BULK)
    return shared and not operand.per_lane and operand.scope != "warp"


def _place(kernel: Kernel, row: TensorIntrin, operand: Operand, pointer: ll.Value) -> ll.Value:
    """The address of an operand that a thread passes; its memory holds the contents of the array."""
    nbytes = _lane_bytes(row, operand)
    uniform = is_uniform(row, operand)
    if operand.scope == "global":
        return pointer if uniform else _of_thread(kernel, row, operand, pointer)
    if operand.scope == "shared":
        total = nbytes if uniform else 32 * nbytes
        shared = kernel.shared(total)
        kernel.copy_together(shared, pointer, total)
        return shared if uniform else _of_thread(kernel, row, operand, shared)
    registers = kernel.registers(nbytes)
    kernel.copy(registers, _of_thread(kernel, row, operand, pointer), nbytes, dt.nbytes(operand.dtype))
    return registers


def _write_back(kernel: Kernel, row: TensorIntrin, place: ll.Value) -> None:
    operand, pointer = row.operands[0], kernel.pointers[0]
    nbytes = _lane_bytes(row, operand)
    if operand.scope == "shared" and is_uniform(row, operand):
        kernel.barrier()
        kernel.copy_together(pointer, place, nbytes)
    elif operand.scope != "global":
        kernel.copy(_of_thread(kernel, row, operand, pointer), place, nbytes, dt.nbytes(operand.dtype))


def assemble(ptx: str, sm: str, directory: Path) -> str:
    """The output of ``ptxas -v``; empty if CUDA's assembler is not installed. Fails if ptxas rejects the text."""
    if shutil.which("ptxas") is None:
        return ""
    source = directory / "kernel.ptx"
    source.write_text(ptx)
    command = ["ptxas", "-v", f"-arch={sm}", str(source), "-o", str(directory / "kernel.cubin")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr
