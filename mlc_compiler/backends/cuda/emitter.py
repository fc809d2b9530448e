"""Emit device functions as LLVM code for NVPTX: thread and block indices, shared memory, barriers, vector accesses.

Address spaces are explicit: kernel parameters are ``ptr addrspace(1)``, shared memory is ``ptr addrspace(3)``.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd, prod

from ...codegen import llvm_ir as ll
from ...codegen import values as v
from ...codegen.arithmetic import CodegenError
from ...codegen.conversions import resize
from ...codegen.emitter import Lanes
from ...codegen.expressions import ExprEmitter
from ...codegen.statements import StmtEmitter
from ...codegen.values import F16, F32, I8, I16, I32, I64, PTR, VOID, i32
from ...ir import dtype as dt
from ...ir.expr import Call, Cast, IntImm, PrimExpr, Var, is_const
from ...ir.visitor import substitute, walk
from ...target import Target
from ...tir.calling import scalar_parameters
from ...tir.nodes import (
    THREAD,
    UNROLLED,
    VECTORIZED,
    Allocate,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    PrimFunc,
    Stmt,
)
from ...tir.threads import sync_scope
from .launches import TENSOR_MAPS, WEIGHTS, Launch
from .machine import STATIC_SHARED_BYTES, WARP, Gpu
from .math import SPECIAL_FUNCTIONS
from .tensor_maps import PARAMETER_ATTRIBUTES

GLOBAL, SHARED = ll.PointerType(addrspace=1), ll.PointerType(addrspace=3)
_EXACT_INTEGERS = {"float16": 1 << 10, "float32": 1 << 23}  # 2 ** (bits of the significand - 1)
ALIGNMENT = 16  # of buffers in bytes: the widest access
WAIT = "intrinsic.cuda.griddep.wait"
SWIZZLED = tuple(f"intrinsic.cuda.{name}." for name in ("wgmma", "tensor_copy"))
"""Name prefixes of instructions that access swizzled shared memory."""
MIN_BLOCKS = "cuda.min_blocks"
"""Annotation of a nest's outermost loop: the minimum number of its thread blocks per multiprocessor."""
_BARRIERS = {
    "shared": ("llvm.nvvm.barrier.cta.sync.aligned.all", 0),
    "warp": ("llvm.nvvm.bar.warp.sync", -1),
}


def emit_device_function(module: ll.Module, func: PrimFunc, launch: Launch, target: Target) -> ll.Function:
    """Define the kernel of a device function in a module for NVPTX.

    Raises CodegenError for statements without code, and for more shared memory than a block can have.
    """
    scalars, maps = scalar_parameters(func), func.attrs.get(TENSOR_MAPS, ())
    buffers = [PTR if i in maps else GLOBAL for i in range(len(func.buffers))]
    types = [*buffers, *(v.value_type(s.dtype) for s in scalars)]
    fn = ll.Function(module, ll.FunctionType(VOID, types), launch.name)
    fn.calling_convention = "ptx_kernel"
    fn.attributes = {f'"nvvm.reqntid"="{",".join(map(str, launch.block))}"', *_limits(func)}
    for i, (arg, buffer) in enumerate(zip(fn.args, func.buffers, strict=False)):
        arg.rename(buffer.name)
        if i in maps:
            arg.attributes = set(PARAMETER_ATTRIBUTES)
            continue
        arg.attributes.add(f"align {ALIGNMENT}")
        if func.attrs.get("tir.noalias") and (not launch.pdl or i in func.attrs.get(WEIGHTS, ())):
            arg.attributes.add("noalias")  # LLVM reads such a buffer through a cache that is not coherent
    DeviceEmitter(fn, launch, target, _shared_alignment(func)).function(func)
    return fn


def _shared_alignment(func: PrimFunc) -> int:
    """The alignment of a kernel's shared memory, in bytes: the swizzle of wgmma's operands repeats every 1024 bytes."""
    names = (n.op for n in walk(func.body) if isinstance(n, Call))
    return 1024 if any(name.startswith(SWIZZLED) for name in names) else 128


def _limits(func: PrimFunc) -> list[str]:
    """The attribute that limits the registers of a kernel so that ``cuda.min_blocks`` blocks fit a multiprocessor."""
    blocks = func.body.annotations.get(MIN_BLOCKS) if isinstance(func.body, For) else None
    return [] if blocks is None else [f'"nvvm.minctasm"="{blocks}"']


class DeviceExpressions(ExprEmitter):
    """Expressions of one GPU thread. Vector accesses state the alignment that their index guarantees.

    defined: the values of integer variables, in terms of loop variables and parameters.
    """

    def __init__(self, b: ll.IRBuilder, target: Target):
        super().__init__(b, target)
        self.defined: dict[Var, PrimExpr] = {}

    def define(self, var: Var, expr: PrimExpr) -> None:
        super().define(var, expr)
        if dt.is_int(var.dtype):
            self.defined[var] = substitute(expr, self.defined)

    def alignment(self, buffer: Buffer, offset: PrimExpr, elements: int) -> int:
        """The largest known alignment in bytes of ``elements`` elements from ``offset`` on."""
        form = self.analyzer.linear(self.analyzer.simplify(substitute(offset, self.defined)))
        common = gcd(form.const, *(coefficient for _, coefficient in form.terms.values()))
        size = dt.nbytes(buffer.dtype)
        limit = min(ALIGNMENT, elements * size)
        return gcd(limit, common * size) if common else limit

    def emit_Cast(self, e: Cast) -> ll.Value:
        """Small integers become the low bits of a significand: conversions are much slower than additions."""
        low, high = self.analyzer.bounds_of(e.value) if dt.is_int(e.value.dtype) else (None, None)
        limit = _EXACT_INTEGERS.get(e.dtype, 0)
        if low is None or high is None or high - low >= limit or max(-low, high) >= limit:
            return super().emit_Cast(e)
        element, width, exponent = (F16, I16, 0x6400) if e.dtype == "float16" else (F32, I32, 0x4B000000)
        value = self(e.value)
        lanes = v.lanes_of(value)
        above = self.b.sub(value, v.constant(v.value_type(e.value.dtype), low, lanes))
        bits = resize(self.b, above, v.vector_of(width, lanes), signed=False)
        offset = self.b.bitcast(self.b.or_(bits, v.constant(width, exponent, lanes)), v.vector_of(element, lanes))
        return self.b.fsub(offset, v.constant(element, float(limit - low), lanes))

    def emit_Call(self, e: Call) -> ll.Value:
        if e.op not in SPECIAL_FUNCTIONS:
            return super().emit_Call(e)
        return v.intrinsic(self.b, f"llvm.nvvm.{SPECIAL_FUNCTIONS[e.op]}.f", [self(e.args[0])], F32)


class DeviceEmitter(StmtEmitter):
    """Emits the kernel of a device function. alignment: of its shared memory, in bytes."""

    expr: DeviceExpressions

    def __init__(self, fn: ll.Function, launch: Launch, target: Target, alignment: int):
        super().__init__(fn, target)
        self.expr = DeviceExpressions(self.b, target)
        self.launch = launch
        self.target = target
        self.shared = _SharedMemory(fn, launch, target, alignment)

    def body(self, stmt: Stmt) -> None:
        """Emit the kernel's statement; with programmatic dependent launch (PDL), first wait for the previous kernels.

        The next kernel may begin once all blocks have begun. A body with ``cuda.griddep.wait`` waits itself.
        """
        if self.launch.pdl:
            v.intrinsic(self.b, "llvm.nvvm.griddepcontrol.launch.dependents", [], VOID)
            if not any(isinstance(n, Call) and n.op == WAIT for n in walk(stmt)):
                v.intrinsic(self.b, "llvm.nvvm.griddepcontrol.wait", [], VOID)
        super().body(stmt)

    # -- threads

    def emit_For(self, loop: For) -> None:
        if loop.kind == THREAD:
            self._thread_loop(loop)
        elif loop.kind == VECTORIZED and not is_const(loop.extent, 1):
            self._vectorized(loop)
        else:
            with self.loop(loop.var, loop.extent) as latch:
                self.emit(loop.body)
            option = "llvm.loop.unroll.full" if loop.kind == UNROLLED else "llvm.loop.unroll.disable"
            latch().set_metadata("llvm.loop", self.b.module.add_loop_metadata([option]))

    def _thread_loop(self, loop: For) -> None:
        """Bind the loop variable to the thread or block index; threads beyond a smaller extent skip the body."""
        assert loop.thread is not None
        self.expr.analyzer.bind(loop.var, loop.extent)
        index = self._special_register(loop.thread)
        self.expr.env[id(loop.var)] = self.b.zext(index, I64) if loop.var.dtype == "int64" else index
        size = self.launch.size(loop.thread)
        if size is None or is_const(loop.extent, size):
            self.emit(loop.body)
            return
        extent = self.expr.convert(self.expr(loop.extent), loop.extent.dtype, "int32")
        with self.b.if_then(self.b.icmp_unsigned("<", index, extent)):
            self.emit(loop.body)

    def _special_register(self, thread: str) -> ll.Value:
        kind, axis = thread.split(".")
        register = {"blockIdx": "ctaid", "threadIdx": "tid"}[kind]
        return v.intrinsic(self.b, f"llvm.nvvm.read.ptx.sreg.{register}.{axis}", [], I32)

    def emit_Evaluate(self, stmt: Evaluate) -> None:
        scope = sync_scope(stmt)
        if scope is None:
            super().emit_Evaluate(stmt)
            return
        if scope not in _BARRIERS:
            raise CodegenError(f"no barrier of scope {scope!r}; expected {' or '.join(_BARRIERS)}")
        name, operand = _BARRIERS[scope]
        v.intrinsic(self.b, name, [i32(operand)], VOID)

    # -- vectors

    def _vectorized(self, loop: For) -> None:
        """Emit vector code if all accesses are contiguous or uniform and unconditional, else one copy per lane."""
        if not isinstance(loop.extent, IntImm):
            raise CodegenError(f"vectorized loop {loop.var.name!r} needs a constant extent")
        if self.expr.lanes is not None or not self._is_vector(loop):
            self.emit_For(replace(loop, kind=UNROLLED))
            return
        super()._vectorized(loop)

    def _is_vector(self, loop: For) -> bool:
        """Whether all stores are contiguous and all loads contiguous or uniform, without conditions."""
        self.expr.analyzer.bind(loop.var, loop.extent)
        self.expr.lanes = Lanes(loop.var, loop.extent.value)  # type: ignore[attr-defined]
        accesses = [n for n in walk(loop.body) if isinstance(n, BufferLoad | BufferStore)]
        strides = [self.expr._stride(self.expr._flat(a.buffer, a.indices)) for a in accesses]
        self.expr.lanes = None
        if any(isinstance(n, For | IfThenElse | Allocate) for n in walk(loop.body)):
            return False
        if any(isinstance(n, Call) and (n.op == "if_then_else" or "." in n.op) for n in walk(loop.body)):
            return False
        stores = [s for a, s in zip(accesses, strides, strict=True) if isinstance(a, BufferStore)]
        return all(s is not None and s[1] == 1 for s in stores) and all(
            s is not None and s[1] in (0, 1) for s in strides
        )

    # -- memory

    def allocate(self, stmt: Allocate) -> None:
        buffer = stmt.buffer
        if buffer.scope == "shared":
            self.expr.buffers[id(buffer)] = self.shared.place(self.b, buffer)
            return
        count = _elements(buffer)
        if buffer.scope == "warp":
            if count % WARP:
                raise CodegenError(f"buffer {buffer.name!r} has {count} elements; a warp holds a multiple of {WARP}")
            count //= WARP
        array = ll.ArrayType(v.storage_type(buffer.dtype), count)
        with self.b.goto_entry_block():
            self.expr.buffers[id(buffer)] = self.b.alloca(array, buffer.name, align=ALIGNMENT)


def shared_bytes(func: PrimFunc) -> int:
    """The bytes of shared memory that a device function allocates."""
    end = 0
    for node in walk(func.body):
        if isinstance(node, Allocate) and node.buffer.scope == "shared":
            end = _after(end, node.buffer)
    return end


def _after(end: int, buffer: Buffer) -> int:
    return -(-end // ALIGNMENT) * ALIGNMENT + _elements(buffer) * dt.nbytes(buffer.dtype)


def _elements(buffer: Buffer) -> int:
    sizes = [s.value for s in buffer.shape if isinstance(s, IntImm)]
    if len(sizes) < len(buffer.shape):
        raise CodegenError(f"scratch buffer {buffer.name!r} has a symbolic size")
    return prod(sizes)


class _SharedMemory:
    """The shared memory of a block: one array, dynamic if it exceeds the limit of static shared memory."""

    def __init__(self, fn: ll.Function, launch: Launch, target: Target, alignment: int):
        limit = Gpu.of(target).shared_bytes
        if launch.shared_bytes > limit:
            raise CodegenError(
                f"kernel {fn.name!r} needs {launch.shared_bytes} bytes of shared memory; "
                f"a block of {target.cpu} has at most {limit}",
            )
        self.end = 0
        if not launch.shared_bytes:
            return
        dynamic = launch.shared_bytes > STATIC_SHARED_BYTES
        array = ll.ArrayType(I8, 0 if dynamic else launch.shared_bytes)
        self.base = ll.GlobalVariable(fn.module, array, f"{fn.name}_shared", addrspace=3)
        self.base.align = alignment
        self.base.linkage = "external" if dynamic else "internal"
        if not dynamic:
            self.base.initializer = ll.Constant(array, ll.Undefined)

    def place(self, b: ll.IRBuilder, buffer: Buffer) -> ll.Value:
        size = _elements(buffer) * dt.nbytes(buffer.dtype)
        self.end = _after(self.end, buffer)
        return b.gep(self.base, [i32(self.end - size)], source_etype=I8)
