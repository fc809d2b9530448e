"""The worker team of a context: threads, a spinning barrier and one workspace.

A context is a block of memory (layout below). The calling thread is thread 0; workers spin for a job for a short while
and then sleep. A job is ``void job(ptr team, i32 thread, i32 threads, ptr frame)``, run by all threads of the team.

A forked process has its parent's contexts, but none of their workers: the first call there starts new ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir as ll

from ..target import Target
from . import values as v
from .values import I8, I32, I64, PTR, VOID, i32, i64

# Byte offsets of the context's fields; what different threads write lies on different cache lines.
THREADS, STOP, JOB, FRAME, HANDLE, SERIAL = 0, 4, 8, 16, 24, 32
FAILED = 40  # the number of the external call that failed in this run; 0: none
PROCESS = 44  # where the workers run; ADOPTING while another process starts its own
BUSY = 64
EPOCH = 128
ARRIVED = 192
GENERATION = 256
SLEEPERS = 320
WORKSPACE, WORKSPACE_BYTES = 384, 392
MUTEX, CONDITION = 448, 576
HANDLES = 704
MAX_THREADS = 256
START = HANDLES + 8 * MAX_THREADS  # one {team, thread} pair for each worker
CONTEXT_BYTES = START + 16 * MAX_THREADS

# What ``run`` answers when it did not succeed.
BUSY_CONTEXT, NO_MEMORY, CALL_FAILED, NO_CONTEXT, NO_THREADS = -1, -2, -3, -4, -5
ADOPTING = -1
SPINS_BEFORE_SLEEP = 20_000
SPINS_AT_BARRIER = 20_000  # some 0.2 ms, far beyond any imbalance: then another process has the core of a member

BARRIER = "mlc_team_barrier"
HIDDEN = "hidden"  # in place of a linkage: external, with a name that only this library sees

JOB_TYPE = ll.FunctionType(VOID, [PTR, I32, I32, PTR])


def field(b: ll.IRBuilder, context: ll.Value, offset: int | ll.Value) -> ll.Value:
    """The address of a field of the context."""
    index = i64(offset) if isinstance(offset, int) else offset
    return b.gep(context, [index], source_etype=I8)


def external(
    module: ll.Module, name: str, result: ll.Type, args: Sequence[ll.Type], variadic: bool = False
) -> ll.Function:
    """A C library function, declared once."""
    found = module.globals.get(name)
    return found or ll.Function(module, ll.FunctionType(result, list(args), var_arg=variadic), name)


def function(
    module: ll.Module, name: str, result: ll.Type, args: Sequence[ll.Type]
) -> tuple[ll.Function, ll.IRBuilder]:
    """An internal function to be defined, and the builder at its beginning."""
    fn = module.globals.get(name) or ll.Function(module, ll.FunctionType(result, list(args)), name)
    fn.linkage = "internal"
    fn.attributes.add("noinline")
    return fn, ll.IRBuilder(fn.append_basic_block("entry"))


class TeamRuntime:
    """Defines the team's functions in a module."""

    def __init__(self, module: ll.Module, target: Target):
        self.module = module
        self.target = target
        self.barrier = self._define_barrier()
        self.worker = self._define_worker()
        self.stop = self._define_stop()
        self.start = self._define_start()
        self.adopt = self._define_adopt()
        self.run = self._define_run()

    def _pause(self, b: ll.IRBuilder) -> None:
        if self.target.triple.startswith("x86_64"):
            v.intrinsic(b, "llvm.x86.sse2.pause", [], VOID)
        elif self.target.triple.startswith("aarch64"):
            v.intrinsic(b, "llvm.aarch64.hint", [i32(1)], VOID)

    def _spin_while_equal(self, b: ll.IRBuilder, address: ll.Value, value: ll.Value, limit: int) -> ll.Value:
        """Spin until ``*address != value`` or ``limit`` rounds; gives whether the value changed."""
        before = b.block
        head, pause, done = (b.append_basic_block(n) for n in ("spin", "spin.pause", "spin.done"))
        b.branch(head)
        b.position_at_end(head)
        rounds = b.phi(I32)
        rounds.add_incoming(i32(0), before)
        changed = b.icmp_unsigned("!=", b.load_atomic(address, "acquire", 4, typ=I32), value)
        b.cbranch(b.or_(changed, b.icmp_unsigned(">=", rounds, i32(limit))), done, pause)
        b.position_at_end(pause)
        self._pause(b)
        rounds.add_incoming(b.add(rounds, i32(1)), pause)
        b.branch(head)
        b.position_at_end(done)
        return changed

    def _define_barrier(self) -> ll.Function:
        """``void barrier(ptr team, i32 threads)``: the last thread to arrive opens the next generation."""
        fn, b = function(self.module, BARRIER, VOID, [PTR, I32])
        fn.linkage = HIDDEN
        team, threads = fn.args
        with b.if_then(b.icmp_unsigned("<=", threads, i32(1))):
            b.ret_void()
        generation_at = field(b, team, GENERATION)
        generation = b.load_atomic(generation_at, "acquire", 4, typ=I32)
        arrived = b.atomic_rmw("add", field(b, team, ARRIVED), i32(1), "acq_rel")
        with b.if_then(b.icmp_unsigned("==", b.add(arrived, i32(1)), threads)):
            store_atomic(b, i32(0), field(b, team, ARRIVED), "monotonic")
            b.atomic_rmw("add", generation_at, i32(1), "seq_cst")
            self._wake_sleepers(b, team)
            b.ret_void()
        sleep, done = (b.append_basic_block(n) for n in ("sleep", "open"))
        b.cbranch(self._spin_while_equal(b, generation_at, generation, SPINS_AT_BARRIER), done, sleep)
        b.position_at_end(sleep)
        self._sleep_until_changed(b, team, generation_at, generation)
        b.branch(done)
        b.position_at_end(done)
        b.ret_void()
        return fn

    def _define_worker(self) -> ll.Function:
        """``ptr worker(ptr {team, thread})``: wait for an epoch, run its job, meet the others at the barrier."""
        fn, b = function(self.module, "mlc_team_worker", PTR, [PTR])
        team = b.load(fn.args[0], typ=PTR)
        thread = b.load(field(b, fn.args[0], 8), typ=I32)
        threads = b.load(field(b, team, THREADS), typ=I32)
        entry = b.block
        loop, sleep, work, stop, run = (b.append_basic_block(n) for n in ("loop", "sleep", "work", "stop", "run"))
        b.branch(loop)
        b.position_at_end(loop)
        last = b.phi(I32, "epoch")
        last.add_incoming(i32(0), entry)
        epoch_at = field(b, team, EPOCH)
        b.cbranch(self._spin_while_equal(b, epoch_at, last, SPINS_BEFORE_SLEEP), work, sleep)
        b.position_at_end(sleep)
        self._sleep_until_changed(b, team, epoch_at, last)
        b.branch(work)
        b.position_at_end(work)
        stopped = b.load_atomic(field(b, team, STOP), "acquire", 4, typ=I32)
        b.cbranch(b.icmp_unsigned("!=", stopped, i32(0)), stop, run)
        b.position_at_end(stop)
        b.ret(ll.Constant(PTR, None))
        b.position_at_end(run)
        job = b.load(field(b, team, JOB), typ=PTR)
        frame = b.load(field(b, team, FRAME), typ=PTR)
        _call_job(b, job, [team, thread, threads, frame])
        b.call(self.barrier, [team, threads])
        last.add_incoming(b.add(last, i32(1)), b.block)
        b.branch(loop)
        return fn

    def _sleep_until_changed(self, b: ll.IRBuilder, team: ll.Value, address: ll.Value, last: ll.Value) -> None:
        """Give the core away until ``*address != last``; who changes it calls ``_wake_sleepers`` after that."""
        mutex, condition = field(b, team, MUTEX), field(b, team, CONDITION)
        self._pthread(b, "pthread_mutex_lock", mutex)
        b.atomic_rmw("add", field(b, team, SLEEPERS), i32(1), "seq_cst")
        check, wait, awake = (b.append_basic_block(n) for n in ("check", "cond_wait", "awake"))
        b.branch(check)
        b.position_at_end(check)
        now = b.load_atomic(address, "seq_cst", 4, typ=I32)
        b.cbranch(b.icmp_unsigned("==", now, last), wait, awake)
        b.position_at_end(wait)
        b.call(external(self.module, "pthread_cond_wait", I32, [PTR, PTR]), [condition, mutex])
        b.branch(check)
        b.position_at_end(awake)
        b.atomic_rmw("sub", field(b, team, SLEEPERS), i32(1), "seq_cst")
        self._pthread(b, "pthread_mutex_unlock", mutex)

    def _pthread(self, b: ll.IRBuilder, name: str, argument: ll.Value) -> None:
        b.call(external(self.module, name, I32, [PTR]), [argument])

    def _wake(self, b: ll.IRBuilder, team: ll.Value) -> None:
        """Open the next epoch and wake the workers that sleep."""
        b.atomic_rmw("add", field(b, team, EPOCH), i32(1), "seq_cst")
        self._wake_sleepers(b, team)

    def _wake_sleepers(self, b: ll.IRBuilder, team: ll.Value) -> None:
        sleepers = b.load_atomic(field(b, team, SLEEPERS), "seq_cst", 4, typ=I32)
        with b.if_then(b.icmp_unsigned("!=", sleepers, i32(0))):
            self._pthread(b, "pthread_mutex_lock", field(b, team, MUTEX))
            self._pthread(b, "pthread_cond_broadcast", field(b, team, CONDITION))
            self._pthread(b, "pthread_mutex_unlock", field(b, team, MUTEX))

    def _define_start(self) -> ll.Function:
        """``i32 start(ptr team, i32 threads)``: start the workers of a stopped context; 0 when they are refused."""
        fn, b = function(self.module, "mlc_team_start", I32, [PTR, I32])
        team, threads = fn.args
        for offset in (STOP, FAILED, EPOCH, ARRIVED, SLEEPERS):
            store_atomic(b, i32(0), field(b, team, offset))
        for name, offset in (("pthread_mutex_init", MUTEX), ("pthread_cond_init", CONDITION)):
            b.call(external(self.module, name, I32, [PTR, PTR]), [field(b, team, offset), ll.Constant(PTR, None)])
        b.store(threads, field(b, team, THREADS))
        self._start_workers(b, team, threads)
        store_atomic(b, self.process(b), field(b, team, PROCESS))
        b.ret(i32(1))
        return fn

    def process(self, b: ll.IRBuilder) -> ll.Value:
        """The number of this process."""
        return b.call(external(self.module, "getpid", I32, []), [])

    def forget(self, b: ll.IRBuilder, team: ll.Value) -> None:
        """Drop what belongs to the threads of another process: a call that may be running there, and its workspace."""
        b.store(ll.Constant(PTR, None), field(b, team, WORKSPACE))
        b.store(i64(0), field(b, team, WORKSPACE_BYTES))
        store_atomic(b, i32(0), field(b, team, BUSY))

    def _define_adopt(self) -> ll.Function:
        """``i32 adopt(ptr team)``: start workers for a context made before a fork; 0 or an error of ``run``."""
        fn, b = function(self.module, "mlc_team_adopt", I32, [PTR])
        team, process_at = fn.args[0], field(b, fn.args[0], PROCESS)
        owner = b.load_atomic(process_at, "acquire", 4, typ=I32)
        with b.if_then(b.icmp_unsigned("==", owner, self.process(b)), likely=True):
            b.ret(i32(0))
        claim = b.cmpxchg(process_at, owner, i32(ADOPTING), "acq_rel", "monotonic")
        is_first = b.and_(b.extract_value(claim, 1), b.icmp_unsigned("!=", owner, i32(ADOPTING)))
        with b.if_then(b.not_(is_first)):
            b.ret(i32(BUSY_CONTEXT))
        self.forget(b, team)
        threads = b.load(field(b, team, THREADS), typ=I32)
        started = b.call(self.start, [team, threads])
        with b.if_then(b.icmp_unsigned("==", started, i32(0))):
            b.store(threads, field(b, team, THREADS))
            store_atomic(b, owner, process_at)
            b.ret(i32(NO_THREADS))
        b.ret(i32(0))
        return fn

    def _start_workers(self, b: ll.IRBuilder, team: ll.Value, threads: ll.Value) -> None:
        start = external(self.module, "pthread_create", I32, [PTR, PTR, PTR, PTR])
        before = b.block
        head, body, done = (b.append_basic_block(n) for n in ("start", "start.one", "started"))
        b.branch(head)
        b.position_at_end(head)
        i = b.phi(I32)
        i.add_incoming(i32(1), before)
        b.cbranch(b.icmp_signed("<", i, threads), body, done)
        b.position_at_end(body)
        wide = b.zext(i, I64)
        pair = field(b, team, b.add(b.mul(wide, i64(16)), i64(START)))
        b.store(team, pair)
        b.store(i, field(b, pair, 8))
        handle = field(b, team, b.add(b.mul(wide, i64(8)), i64(HANDLES)))
        failed = b.icmp_signed("!=", b.call(start, [handle, ll.Constant(PTR, None), self.worker, pair]), i32(0))
        with b.if_then(failed):
            b.store(i, field(b, team, THREADS))
            b.call(self.stop, [team])
            b.ret(i32(0))
        i.add_incoming(b.add(i, i32(1)), b.block)
        b.branch(head)
        b.position_at_end(done)

    def _define_stop(self) -> ll.Function:
        """``void stop(ptr team)``: end and join the workers, free the workspace."""
        fn, b = function(self.module, "mlc_team_stop", VOID, [PTR])
        team = fn.args[0]
        store_atomic(b, i32(1), field(b, team, STOP), "acq_rel")
        self._wake(b, team)
        threads = b.load(field(b, team, THREADS), typ=I32)
        before = b.block
        head, body, done = (b.append_basic_block(n) for n in ("join", "join.one", "joined"))
        b.branch(head)
        b.position_at_end(head)
        i = b.phi(I32)
        i.add_incoming(i32(1), before)
        b.cbranch(b.icmp_signed("<", i, threads), body, done)
        b.position_at_end(body)
        handle = b.load(field(b, team, b.add(b.mul(b.zext(i, I64), i64(8)), i64(HANDLES))), typ=I64)
        b.call(external(self.module, "pthread_join", I32, [I64, PTR]), [handle, ll.Constant(PTR, None)])
        i.add_incoming(b.add(i, i32(1)), body)
        b.branch(head)
        b.position_at_end(done)
        b.call(external(self.module, "free", VOID, [PTR]), [b.load(field(b, team, WORKSPACE), typ=PTR)])
        b.store(ll.Constant(PTR, None), field(b, team, WORKSPACE))
        b.store(i64(0), field(b, team, WORKSPACE_BYTES))
        b.ret_void()
        return fn

    def _define_run(self) -> ll.Function:
        """``i32 run(ptr team, i64 handle, ptr job, ptr frame, i64 workspace bytes)``: 0 or one of the errors above."""
        fn, b = function(self.module, "mlc_team_run", I32, [PTR, I64, PTR, PTR, I64])
        team, handle, job, frame, needed = fn.args
        adopted = b.call(self.adopt, [team])
        with b.if_then(b.icmp_signed("<", adopted, i32(0)), likely=False):
            b.ret(adopted)
        busy = b.atomic_rmw("xchg", field(b, team, BUSY), i32(1), "acquire")
        with b.if_then(b.icmp_unsigned("!=", busy, i32(0))):
            b.ret(i32(BUSY_CONTEXT))
        current = b.load_atomic(field(b, team, HANDLE), "acquire", 8, typ=I64)
        with b.if_then(b.icmp_unsigned("!=", current, handle), likely=False):
            self._leave(b, team, i32(NO_CONTEXT))
        self._grow_workspace(b, team, needed)
        threads = b.load(field(b, team, THREADS), typ=I32)
        b.store(job, field(b, team, JOB))
        b.store(frame, field(b, team, FRAME))
        with b.if_then(b.icmp_unsigned(">", threads, i32(1))):
            self._wake(b, team)
        _call_job(b, job, [team, i32(0), threads, frame])
        b.call(self.barrier, [team, threads])
        failed = b.load(field(b, team, FAILED), typ=I32)
        b.store(i32(0), field(b, team, FAILED))
        self._leave(b, team, b.select(b.icmp_unsigned("==", failed, i32(0)), i32(0), i32(CALL_FAILED)))
        return fn

    def _leave(self, b: ll.IRBuilder, team: ll.Value, status: ll.Value) -> None:
        store_atomic(b, i32(0), field(b, team, BUSY))
        b.ret(status)

    def _grow_workspace(self, b: ll.IRBuilder, team: ll.Value, needed: ll.Value) -> None:
        size_at, memory_at = field(b, team, WORKSPACE_BYTES), field(b, team, WORKSPACE)
        with b.if_then(b.icmp_unsigned(">", needed, b.load(size_at, typ=I64)), likely=False):
            b.call(external(self.module, "free", VOID, [PTR]), [b.load(memory_at, typ=PTR)])
            rounded = b.and_(b.add(needed, i64(63)), i64(-64))
            memory = b.call(external(self.module, "aligned_alloc", PTR, [I64, I64]), [i64(64), rounded])
            b.store(memory, memory_at)
            b.store(rounded, size_at)
            with b.if_then(b.icmp_unsigned("==", b.ptrtoint(memory, I64), i64(0))):
                b.store(i64(0), size_at)
                self._leave(b, team, i32(NO_MEMORY))


def store_atomic(b: ll.IRBuilder, value: ll.Value, address: ll.Value, ordering: str = "acq_rel") -> None:
    """A store that other threads see in order."""
    b.atomic_rmw("xchg", address, value, ordering)


class _JobPointer(ll.values.NamedValue):
    """A loaded pointer that llvmlite accepts as the callee of a job."""

    function_type = JOB_TYPE

    def __init__(self, pointer: ll.Value):
        self.type = PTR
        self.pointer = pointer

    def get_reference(self) -> str:
        return str(self.pointer.get_reference())


def _call_job(b: ll.IRBuilder, job: ll.Value, args: list[ll.Value]) -> None:
    b.call(_JobPointer(job), args)
