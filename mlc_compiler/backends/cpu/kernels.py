"""Emit tensor functions as LLVM functions that every thread of the worker team calls.

Signature: ``void kernel(ptr team, i32 thread, i32 threads, buffers…, scalars…)``. Threads claim pieces of a parallel
loop; with the annotation ``schedule: "dynamic"``, single iterations. A statement outside of parallel loops is run by
one thread, as a loop of one iteration; top-level statements are separated by barriers. One that writes only buffers of
scope ``PRIVATE`` is run by every thread, without a barrier after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...codegen import llvm_ir as ll
from ...codegen import values as v
from ...codegen.arithmetic import CodegenError
from ...codegen.host.code import HIDDEN
from ...codegen.host.module import split_modules
from ...codegen.loops import while_loop
from ...codegen.statements import StmtEmitter, declare_kernel
from ...codegen.values import I1, I32, I64, PTR, i64
from ...ir.expr import PrimExpr
from ...ir.module import IRModule
from ...ir.visitor import free_vars, nodes_of, walk
from ...target import Target
from ...tir.intrinsics import written_buffers
from ...tir.nodes import PARALLEL, PRIVATE, Allocate, BufferLoad, For, IfThenElse, LetStmt, PrimFunc, SeqStmt, Stmt

INSTRUCTIONS_IN_A_MODULE = 1000  # amortizes the cost of a module, and leaves modules for every core
BARRIER, NEXT_LOOP, BEGIN = "mlc_team_barrier", "mlc_team_next_loop", "mlc_team_begin"
CLAIM, FINISH, ON_TIME = "mlc_team_claim", "mlc_team_finish", "mlc_team_on_time"
PIECE_WORDS = 4  # of the state of a thread in a loop, see ``team.py``
DIVIDED = 0  # as the grain of a loop: pieces are a share of a thread's part
DYNAMIC = "dynamic"
TEAM_PARAMETERS = (("team", PTR), ("thread", I32), ("threads", I32))


def emit_kernels(mod: IRModule, target: Target) -> Iterator[str]:
    """Emit the tensor functions of a module as LLVM modules, as text."""

    def emit(module: ll.Module, name: str, func: PrimFunc) -> ll.Function:
        kernel = declare_kernel(module, func, name, TEAM_PARAMETERS)
        TeamEmitter(kernel, target).function(func)
        return kernel

    funcs = mod.of_type(PrimFunc).items()
    return (str(module) for module, _ in split_modules(funcs, target, INSTRUCTIONS_IN_A_MODULE, emit))


def call_barrier(b: ll.IRBuilder, team: ll.Value, thread: ll.Value) -> None:
    """Emit a barrier of all threads of the team."""
    b.call(runtime_function(b.module, BARRIER, v.VOID, [PTR, I32]), [team, thread])


def begin_call(b: ll.IRBuilder, team: ll.Value, thread: ll.Value) -> None:
    """Begin a loop of one iteration that the calling thread will not claim."""
    with b.goto_entry_block():
        piece = b.alloca(ll.ArrayType(I64, PIECE_WORDS), "piece", align=8)
    b.call(runtime_function(b.module, NEXT_LOOP, I1, [PTR, I32]), [team, thread])
    b.call(runtime_function(b.module, BEGIN, I1, [PTR, I32, I64, PTR]), [team, thread, i64(1), piece])


def end_call(b: ll.IRBuilder, team: ll.Value) -> None:
    """Mark the iteration of ``begin_call`` as done."""
    b.call(runtime_function(b.module, FINISH, v.VOID, [PTR, I64]), [team, i64(1)])


def runtime_function(module: ll.Module, name: str, result: ll.Type, args: Sequence[ll.Type]) -> ll.Function:
    """Declare a function of the team, see ``team.py``."""
    fn = module.get_function(name)
    if fn is None:
        fn = ll.Function(module, ll.FunctionType(result, args), name)
        fn.linkage = HIDDEN
    return fn


def has_parallel(stmt: Stmt) -> bool:
    return any(isinstance(n, For) and n.kind == PARALLEL for n in walk(stmt))


def reads_memory(expr: PrimExpr) -> bool:
    return any(isinstance(n, BufferLoad) for n in walk(expr))


def reads_where_memory_says(expr: PrimExpr) -> bool:
    """Whether an expression has an indirect load, whose index may be out of bounds if memory has changed."""
    return any(isinstance(n, BufferLoad) and any(map(reads_memory, n.indices)) for n in walk(expr))


class TeamEmitter(StmtEmitter):
    """Emits a tensor function for the worker team.

    A thread that arrives late replays control flow up to the current loop, when memory may have changed. So a
    sequential loop whose extent, or a condition whose value, depends on memory is run by one thread as a whole.
    """

    def __init__(self, fn: ll.Function, target: Target):
        super().__init__(fn, target)
        self._from_memory: set[int] = set()  # identities of variables
        self._private: set[int] = set()  # identities of buffers of which every thread has a copy

    def body(self, stmt: Stmt) -> None:
        """Emit a statement that every thread of the team reaches."""
        if self._is_private(stmt):
            on_time = runtime_function(self.b.module, ON_TIME, I1, [PTR, I32])
            with self.b.if_then(self.b.call(on_time, self.fn.args[:2])):  # a late thread has no use for it
                self.emit(stmt)
        elif not has_parallel(stmt):
            self._once(stmt)
        elif isinstance(stmt, SeqStmt):
            for i, child in enumerate(stmt.stmts):
                if i and not self._is_private(stmt.stmts[i - 1]):
                    self.barrier()
                self.body(child)
        elif isinstance(stmt, For):
            self._team_loop(stmt)
        elif isinstance(stmt, Allocate):
            self.allocate(stmt)
            if stmt.buffer.scope == PRIVATE:
                self._private.add(id(stmt.buffer))
            self.body(stmt.body)
        elif isinstance(stmt, LetStmt):
            self._let(stmt)
        elif isinstance(stmt, IfThenElse) and stmt.else_case is None:
            if self._depends_on_memory(stmt.condition):
                self._once(stmt)
            else:
                with self.b.if_then(self.expr(stmt.condition)):
                    self.body(stmt.then_case)
        else:
            raise CodegenError(f"a parallel loop inside {type(stmt).__name__} has no code")

    def _is_private(self, stmt: Stmt) -> bool:
        """Whether a statement writes only buffers of which every thread has a copy, and buffers of its own."""
        if not self._private:
            return False
        written = written_buffers(stmt) - {id(n.buffer) for n in nodes_of(stmt, Allocate)}
        return bool(written) and written <= self._private

    def _let(self, stmt: LetStmt) -> None:
        if reads_where_memory_says(stmt.value):
            self._once(stmt)
            return
        if self._depends_on_memory(stmt.value):
            self._from_memory.add(id(stmt.var))
        self.expr.define(stmt.var, stmt.value)
        self.body(stmt.body)

    def _depends_on_memory(self, expr: PrimExpr) -> bool:
        return reads_memory(expr) or any(id(var) in self._from_memory for var in free_vars(expr))

    def _team_loop(self, loop: For) -> None:
        self.check_loop(loop)
        parallel = loop.kind == PARALLEL
        if reads_where_memory_says(loop.extent) or (not parallel and self._depends_on_memory(loop.extent)):
            self._once(loop)
        elif parallel:
            self._parallel_loop(loop)
        else:
            with self.loop(loop.var, loop.extent):
                self.body(loop.body)
                self.barrier()

    def _parallel_loop(self, loop: For) -> None:
        def run(begin: ll.Value, end: ll.Value) -> None:
            self.expr.analyzer.bind(loop.var, loop.extent)
            with self.counted(loop.var, begin, end) as latch:
                self.emit(loop.body)
            # An iteration must give the same bits in any piece: vectors of iterations may be rounded differently.
            option = ("llvm.loop.vectorize.enable", ll.Constant(I1, 0))
            latch().set_metadata("llvm.loop", self.b.module.add_loop_metadata(option))

        grain = 1 if loop.annotations.get("schedule") == DYNAMIC else DIVIDED
        self._claimed(lambda: self.index(loop.extent), grain, run)

    def _once(self, stmt: Stmt) -> None:
        """Emit a statement that one thread runs."""
        self._claimed(lambda: i64(1), 1, lambda _begin, _end: self.emit(stmt))

    def _claimed(self, extent: Callable[[], ll.Value], grain: int, run: Callable[[ll.Value, ll.Value], None]) -> None:
        """Emit a loop whose pieces the threads claim; ``run`` emits iterations ``[begin, end)``."""
        b, (team, thread, threads) = self.b, self.fn.args[:3]
        with b.goto_entry_block():
            piece = b.alloca(ll.ArrayType(I64, PIECE_WORDS), "piece", align=8)
        next_loop = runtime_function(b.module, NEXT_LOOP, I1, [PTR, I32])
        begin = runtime_function(b.module, BEGIN, I1, [PTR, I32, I64, PTR])
        claim = runtime_function(b.module, CLAIM, I1, [PTR, I32, I32, I64, I64, PTR])
        with b.if_then(b.call(next_loop, [team, thread])):
            iterations = extent()
            with b.if_then(b.call(begin, [team, thread, iterations, piece])):

                def work() -> list[ll.Value]:
                    run(b.load(piece, typ=I64), b.load(b.gep(piece, [i64(1)], source_etype=I64), typ=I64))
                    return []

                arguments = [team, thread, threads, iterations, i64(grain), piece]
                while_loop(b, "piece", [], lambda: b.call(claim, arguments), work)

    def barrier(self) -> None:
        call_barrier(self.b, *self.fn.args[:2])
