"""Kernels and their launches: the interface between device code and host code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...ir.expr import Call, IntImm, PrimExpr, StringImm
from ...tir.nodes import Buffer, BufferLoad, PrimFunc

AXES = ("x", "y", "z")

KERNEL = "cuda.kernel"
"""Attribute of device functions."""
LAUNCH = "cuda.launch"
"""The call by which a host function launches a kernel, see ``LaunchCall``."""
PDL = "cuda.pdl"
"""Attribute of kernels with programmatic dependent launch, which begin before the previous kernel has ended."""
WEIGHTS = "cuda.weights"
"""Attribute of kernels: the positions of buffers that no kernel of a graph function writes."""

TENSOR_MAPS = "cuda.tensor_maps"
"""Attribute of kernels: the positions of the buffers that they receive as tensor maps instead of addresses."""
TENSOR_MAP = "cuda.tensor_map"
"""The argument of a launch that describes a matrix for tensor copies, see ``TensorMapArgument``."""


@dataclass(frozen=True)
class Launch:
    """A kernel as it is launched.

    block: threads along x, y, z. shared_bytes: its shared memory, static or dynamic. pdl: it may begin before the
    previous launch has ended, and waits for that launch's results itself (programmatic dependent launch).
    """

    name: str
    block: tuple[int, int, int]
    shared_bytes: int
    pdl: bool = False

    def size(self, thread: str) -> int | None:
        """The threads along ``threadIdx.x``; None for an axis of the grid, which has the size of its loop."""
        kind, axis = thread.split(".")
        return self.block[AXES.index(axis)] if kind == "threadIdx" else None


@dataclass(frozen=True)
class LaunchCall:
    """The call by which a host function launches a kernel.

    grid: blocks along x, y, z. block: threads along x, y, z. args: the kernel's arguments; addresses of buffers first.
    """

    kernel: str
    grid: tuple[PrimExpr, PrimExpr, PrimExpr]
    block: tuple[PrimExpr, PrimExpr, PrimExpr]
    shared_bytes: PrimExpr
    args: tuple[PrimExpr, ...]

    @property
    def call(self) -> Call:
        return Call(LAUNCH, (StringImm(self.kernel), *self.grid, *self.block, self.shared_bytes, *self.args), "handle")

    @classmethod
    def match(cls, value: object) -> LaunchCall | None:
        """Parse an expression as a launch; None for any other expression."""
        if not isinstance(value, Call) or value.op != LAUNCH:
            return None
        name, x, y, z, *rest = value.args
        block_x, block_y, block_z, shared_bytes, *args = rest
        assert isinstance(name, StringImm)
        return cls(name.value, (x, y, z), (block_x, block_y, block_z), shared_bytes, tuple(args))


def weights_of(func: PrimFunc) -> list[Buffer]:
    """The inputs of a tensor function that are not marked as activations: no kernel of a graph function writes them."""
    attrs, buffers = func.attrs, func.buffers
    written = int(attrs.get("num_outputs", 0)) + int(attrs.get("num_scratch", 0))
    activations = attrs.get("activations", range(len(buffers)))
    return [b for i, b in enumerate(buffers[: len(buffers) - written]) if i not in activations]


@dataclass(frozen=True)
class TensorMapArgument:
    """A matrix [height, width], row-major, that a kernel copies in boxes of ``rows`` rows; first: its first element."""

    first: BufferLoad
    height: PrimExpr
    width: PrimExpr
    rows: int

    @property
    def call(self) -> Call:
        address = Call("address_of", (self.first,), "handle")
        return Call(TENSOR_MAP, (address, self.height, self.width, IntImm(self.rows)), "handle")

    @classmethod
    def match(cls, value: object) -> TensorMapArgument | None:
        """Parse an argument as a tensor map; None for any other argument."""
        if not isinstance(value, Call) or value.op != TENSOR_MAP:
            return None
        address, height, width, rows = value.args
        assert isinstance(address, Call) and isinstance(address.args[0], BufferLoad) and isinstance(rows, IntImm)
        return cls(address.args[0], height, width, rows.value)


@dataclass(frozen=True)
class Images:
    """A compiled module: its PTX, and machine code (cubin) by architecture."""

    ptx: str
    cubins: Mapping[str, bytes]


@dataclass(frozen=True)
class Kernel:
    """A kernel in a library: its launch, and the position of its module in the list of images."""

    launch: Launch
    module: int
