"""Runs the host functions of a lowered module with simulated kernel launches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from mlc_compiler.backends.cuda.instructions.copies import BOX_COLUMNS
from mlc_compiler.backends.cuda.launches import Images, LaunchCall, TensorMapArgument, weights_of
from mlc_compiler.backends.cuda.machine import STATIC_SHARED_BYTES
from mlc_compiler.interp.evaluate import evaluate
from mlc_compiler.interp.tensor import match_arguments
from mlc_compiler.ir import dtype as dt
from mlc_compiler.ir.expr import Call, IntImm, PrimExpr
from mlc_compiler.sim.counts import Counts
from mlc_compiler.sim.errors import SimulationError
from mlc_compiler.sim.machine import run
from mlc_compiler.sim.memory import WRITTEN, Memory
from mlc_compiler.sim.parser import parse_ptx
from mlc_compiler.sim.program import Kernel
from mlc_compiler.sim.tensor_map import TensorMap, encode_tensor_map
from mlc_compiler.tir.calling import flat_index
from mlc_compiler.tir.nodes import (
    ZEROED,
    Buffer,
    BufferLoad,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
)

LINE = 16  # bytes; LLVM may load the aligned line around an element
Blocks = Callable[[int], Iterable[int]]
"""Maps the number of blocks of a launch to the blocks to simulate."""


@dataclass(frozen=True)
class Launched:
    """A launch: its kernel, grid and block sizes, the number of simulated blocks, and their statistics."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    simulated: int
    counts: Counts

    @property
    def blocks(self) -> int:
        """The number of blocks in the grid."""
        return prod(self.grid)


@dataclass(frozen=True)
class Device:
    """A simulated GPU that holds the kernels of a module.

        device = Device.of(compile_kernels(mod, target).images)
        run_function(mod, "main", x, w, kernels=device.run)

    kernels: kernels by symbol. blocks: the blocks of a launch to simulate; None: all. With a subset,
    races and uninitialized reads are not detected.
    """

    kernels: Mapping[str, Kernel]
    blocks: Blocks | None = None

    @staticmethod
    def of(images: Sequence[Images], blocks: Blocks | None = None) -> Device:
        """Create a device that holds the kernels of ``images``."""
        programs = [parse_ptx(image.ptx) for image in images]
        return Device({name: kernel for p in programs for name, kernel in p.kernels.items()}, blocks)

    def run(self, func: PrimFunc, *args: Any) -> list[Launched]:
        """Run a host function in place; returns its launches in order.

        args: as for ``run_prim_func``. Every array is a separate allocation; results and scratch memory other than
        ``ZEROED`` are uninitialized. Raises SimulationError for a fault in a kernel, and for a result with
        elements that no kernel writes.
        """
        call = _Call(self, func, args)
        call.statement(func.body)
        call.store_results(complete=self.blocks is None)
        return call.launched


class _Call:
    """A call of a host function."""

    def __init__(self, device: Device, func: PrimFunc, args: Sequence[Any]):
        self.device, self.func = device, func
        self.env = match_arguments(func, args)
        self.arrays = {id(p): a for p, a in zip(func.params, args, strict=True) if isinstance(p, Buffer)}
        self.launched: list[Launched] = []
        self.memory = Memory()
        self.addresses: dict[int, int] = {}
        self._allocate()

    def _allocate(self) -> None:
        """Allocate each distinct argument; earlier kernels may still be writing all arguments but the weights."""
        settled = {id(b) for b in weights_of(self.func)}
        known: dict[tuple[int, int], int] = {}
        fresh = {id(b) for b in (*results(self.func), *scratch(self.func)) if b.scope != ZEROED}
        for buffer in self.func.buffers:
            array = self.arrays[id(buffer)]
            place = (array.ctypes.data, array.nbytes)
            if place not in known:
                padded = -(-array.nbytes // LINE) * LINE
                content = padded if id(buffer) in fresh else _whole_lines(array)
                known[place] = self.memory.allocate(content, buffer.name, initialized=self.device.blocks is not None)
            self.addresses[id(buffer)] = known[place]
            if id(buffer) not in settled:
                self.memory.unsettle(known[place])

    def value(self, e: PrimExpr) -> Any:
        return evaluate(e, self.env)

    def statement(self, s: Stmt) -> None:
        match s:
            case SeqStmt():
                for item in s.stmts:
                    self.statement(item)
            case For():
                for i in range(self.value(s.extent)):
                    self.env[id(s.var)] = i
                    self.statement(s.body)
            case IfThenElse():
                taken = s.then_case if self.value(s.condition) else s.else_case
                if taken is not None:
                    self.statement(taken)
            case LetStmt():
                self.env[id(s.var)] = self.value(s.value)
                self.statement(s.body)
            case Evaluate() if launch := LaunchCall.match(s.value):
                self._launch(launch)
            case Evaluate(IntImm()):
                pass
            case _:
                raise SimulationError(f"a host function has a statement of type {type(s).__name__}")

    def _launch(self, launch: LaunchCall) -> None:
        x, y, z = map(self.value, launch.grid)
        block = tuple(map(self.value, launch.block))
        shared = self.value(launch.shared_bytes)
        total = x * y * z
        if total == 0:
            return
        chosen = None if self.device.blocks is None else sorted(set(self.device.blocks(total)))
        counts = run(
            self.device.kernels[launch.kernel],
            (x, y, z),
            block,
            [self._argument(e) for e in launch.args],
            self.memory,
            shared if shared > STATIC_SHARED_BYTES else 0,
            races=chosen is None,
            blocks=chosen,
        )
        self.launched.append(
            Launched(launch.kernel, (x, y, z), block, total if chosen is None else len(chosen), counts)
        )

    def _argument(self, e: PrimExpr) -> int | float | bytes:
        tensor_map = TensorMapArgument.match(e)
        if tensor_map is not None:
            return self._tensor_map(tensor_map)
        if not (isinstance(e, Call) and e.op == "address_of"):
            return self.value(e)
        (load,) = e.args
        assert isinstance(load, BufferLoad)
        return self._address(load)

    def _address(self, load: BufferLoad) -> int:
        offset = self.value(flat_index(load.buffer, load.indices))
        return self.addresses[id(load.buffer)] + offset * dt.nbytes(load.buffer.dtype)

    def _tensor_map(self, arg: TensorMapArgument) -> bytes:
        height, width, item = self.value(arg.height), self.value(arg.width), dt.nbytes(arg.first.dtype)
        box = (BOX_COLUMNS, arg.rows)
        return encode_tensor_map(TensorMap(self._address(arg.first), item, (width, height), (width * item,), box, 128))

    def store_results(self, complete: bool) -> None:
        """Copy device memory back; with ``complete``, require that all elements of results were written."""
        for buffer in results(self.func) if complete else ():
            self._check_written(buffer)
        for buffer in self.func.buffers:
            array = self.arrays[id(buffer)]
            if array.flags.writeable:
                array[...] = self.memory.view(self.addresses[id(buffer)], array.dtype, array.shape)

    def _check_written(self, buffer: Buffer) -> None:
        storage = self.memory.find(self.addresses[id(buffer)])
        if storage is None or storage.state is None:
            return
        size = dt.nbytes(buffer.dtype)
        count = prod(self.arrays[id(buffer)].shape)
        missing = (storage.state[: count * size].reshape(count, size) != WRITTEN).any(axis=1).nonzero()[0]
        if len(missing):
            first = tuple(int(i) for i in np.unravel_index(missing[0], self.arrays[id(buffer)].shape))
            raise SimulationError(
                f"result {buffer.name!r}: {len(missing)} of {count} elements are not written, the first is {first}"
            )


def _whole_lines(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bytes of an array, zero-padded to whole lines."""
    data = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
    return np.pad(data, (0, -data.size % LINE)) if data.size % LINE else data


def results(func: PrimFunc) -> Sequence[Buffer]:
    """The parameters that receive results."""
    end = len(func.buffers) - _count(func, "num_scratch")
    return func.buffers[end - _count(func, "num_outputs") : end]


def scratch(func: PrimFunc) -> Sequence[Buffer]:
    """The parameters that are scratch memory."""
    return func.buffers[len(func.buffers) - _count(func, "num_scratch") :]


def _count(func: PrimFunc, name: str) -> int:
    count = func.attrs.get(name, 0)
    return count.value if isinstance(count, IntImm) else int(count)
