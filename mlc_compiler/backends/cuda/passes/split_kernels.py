"""Split tensor functions into kernels, which run on the GPU, and host functions, which launch them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TypeGuard

from ....codegen.arithmetic import CodegenError
from ....ir.expr import Call, IntImm, Let, PrimExpr, Var, const
from ....ir.module import IRModule
from ....ir.simplify import key
from ....ir.visitor import Rewriter, free_vars, walk
from ....passes.base import Pass
from ....tir.calling import scalar_parameters
from ....tir.nodes import (
    THREAD,
    Allocate,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    LetStmt,
    PrimFunc,
    Stmt,
)
from ....tir.threads import BLOCK_AXES, THREAD_AXES, is_bound, launch_extents
from ..emitter import shared_bytes
from ..launches import KERNEL, PDL, TENSOR_MAPS, WEIGHTS, Launch, LaunchCall, weights_of
from ..machine import MAX_THREADS_PER_BLOCK
from .tensor_arguments import tensor_arguments


@dataclass(frozen=True)
class SplitKernels(Pass):
    """Replace each nest over GPU threads by ``cuda.launch(kernel, grid, block, shared bytes, arguments…)``.

    The nests become tensor functions with the attribute ``cuda.kernel``. A matrix that tensor copies read is passed as
    ``cuda.tensor_map(…)`` and named in the attribute ``cuda.tensor_maps``. Needs: lowered tensor functions in which all
    statements but control flow are in nests over GPU threads. pdl: kernels get the attribute ``cuda.pdl``.
    """

    name = "split-kernels"
    pdl: bool = False

    def run(self, mod: IRModule) -> IRModule:
        taken = set(mod)
        result: dict[str, PrimFunc] = {}
        for name, func in mod.of_type(PrimFunc).items():
            split = _Split(name, func, taken, self.pdl)
            result[name] = replace(func, body=split(func.body))
            result |= split.kernels
        return mod.updated(result)


@dataclass
class _Split(Rewriter):
    name: str
    func: PrimFunc
    taken: set[str]
    pdl: bool
    kernels: dict[str, PrimFunc] = field(default_factory=dict)

    def rewrite_For(self, node: For) -> Stmt:
        return self.rewrite_children(node) if node.kind != THREAD else self._kernel(node)

    def rewrite_Allocate(self, node: Allocate) -> Stmt:
        raise CodegenError(
            f"buffer {node.buffer.name!r} of scope {node.buffer.scope!r} is used by several kernels",
            where=[f"function {self.name}"],
            hint="allocate it in scope global, or inside of the loops over GPU threads",
        )

    def _kernel(self, nest: For) -> Stmt:
        used = {id(n.buffer) for n in walk(nest) if isinstance(n, BufferLoad)} | {id(b) for b in _stored(nest)}
        buffers = [b for b in self.func.buffers if id(b) in used]
        shapes = [b.shape for b in buffers]
        known = {id(size) for shape in shapes for size in shape if isinstance(size, Var)}
        known |= {id(n.var) for n in walk(nest) if _defines(n)}
        scalars = free_vars((shapes, nest), lambda v: id(v) not in known)
        grid, block = _grid(nest, self.name), _block(nest, self.name)
        weights, maps = {id(b) for b in weights_of(self.func)}, tensor_arguments(nest, self.name)
        attrs = {
            KERNEL: True,
            WEIGHTS: tuple(i for i, b in enumerate(buffers) if id(b) in weights),
            TENSOR_MAPS: tuple(i for i, b in enumerate(buffers) if id(b) in maps),
            "tir.noalias": bool(self.func.attrs.get("tir.noalias")),
            PDL: self.pdl or bool(self.func.attrs.get(PDL)),
        }
        kernel = PrimFunc((*buffers, *scalars), nest, {name: value for name, value in attrs.items() if value})
        name = self._new_name()
        self.kernels[name] = kernel
        pointers = [Call("address_of", (BufferLoad(b, tuple(IntImm(0) for _ in b.shape)),), "handle") for b in buffers]
        places = [maps[id(b)].call if id(b) in maps else p for b, p in zip(buffers, pointers, strict=True)]
        args = (*places, *scalar_parameters(kernel))
        shared = const(shared_bytes(kernel), "int64")
        threads_x, threads_y, threads_z = (const(n, "int64") for n in block)
        return Evaluate(LaunchCall(name, grid, (threads_x, threads_y, threads_z), shared, args).call)

    def _new_name(self) -> str:
        base = f"{self.name}_kernel"
        names = (f"{base}_{i}" if i else base for i in count())
        name = next(name for name in names if name not in self.taken)
        self.taken.add(name)
        return name


def _stored(nest: Stmt) -> Iterator[Buffer]:
    return (n.buffer for n in walk(nest) if isinstance(n, BufferStore))


def _defines(node: object) -> TypeGuard[For | LetStmt | Let]:
    return isinstance(node, For | LetStmt | Let)


def launch_of(name: str, kernel: PrimFunc) -> Launch:
    """The launch parameters of a kernel that ``SplitKernels`` made."""
    return Launch(name, _block(kernel.body, name), shared_bytes(kernel), bool(kernel.attrs.get(PDL)))


def _grid(nest: Stmt, name: str) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
    """The blocks along x, y, z."""
    sizes: list[PrimExpr] = []
    for axis in BLOCK_AXES:
        extents = {key(n.extent): n.extent for n in walk(nest) if is_bound(n, (axis,))}
        if len(extents) > 1:
            raise CodegenError(f"loops over {axis} have different extents", where=[f"function {name}"])
        sizes.append(next(iter(extents.values()), const(1, "int64")))
    inside = {id(n.var) for n in walk(nest) if isinstance(n, For)}
    if any(id(v) in inside for size in sizes for v in free_vars(size)) or any(
        isinstance(n, BufferLoad) for size in sizes for n in walk(size)
    ):
        raise CodegenError("the number of blocks is not known before the launch", where=[f"function {name}"])
    x, y, z = sizes
    return x, y, z


def _block(nest: Stmt, name: str) -> tuple[int, int, int]:
    """The threads of a block along x, y, z."""
    extents = launch_extents(nest)
    x, y, z = (extents.get(axis, 1) for axis in THREAD_AXES)
    if x * y * z > MAX_THREADS_PER_BLOCK:
        raise CodegenError(
            f"a block has {x * y * z} threads; expected at most {MAX_THREADS_PER_BLOCK}", where=[f"function {name}"]
        )
    return x, y, z
