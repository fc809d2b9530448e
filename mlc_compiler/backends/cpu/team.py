"""The worker team of a context: its threads, a spinning barrier and the job loop.

The calling thread is thread 0; workers spin for a job for a short while and then sleep. A job is ``void job(ptr team,
i32 thread, i32 threads, ptr frame)``, run by all threads of the team.
"""

from __future__ import annotations

from llvmlite import ir as ll

from ...codegen import values as v
from ...codegen.host.code import HIDDEN, call_loaded, external, field, function, store_atomic
from ...codegen.host.contexts import HEAD_BYTES, ContextArgument, HostRuntime
from ...codegen.host.module import HostModule
from ...codegen.loops import for_range, while_loop
from ...codegen.statements import declare_kernel
from ...codegen.values import I1, I32, I64, PTR, VOID, i32, i64
from ...ir.module import IRModule
from ...relax.nodes import Function
from ...tir.nodes import PrimFunc
from .jobs import TeamJob
from .kernels import BARRIER, CLAIM, NEXT_LOOP, TEAM_PARAMETERS

# Byte offsets of the team's fields in a context.
THREADS, STOP, JOB, FRAME = (HEAD_BYTES + offset for offset in (0, 4, 8, 16))
EPOCH, ARRIVED, GENERATION, SLEEPERS = (HEAD_BYTES + 64 * line for line in (1, 2, 3, 4))
MUTEX, CONDITION = HEAD_BYTES + 320, HEAD_BYTES + 448
CLAIMED = HEAD_BYTES + 576  # the number of a loop and how many of its iterations are claimed, 32 bits each
HANDLES = HEAD_BYTES + 640
MAX_THREADS = 256
START = HANDLES + 8 * MAX_THREADS  # one {team, thread} pair for each worker
LOOPS = START + 16 * MAX_THREADS  # per thread, the number of dynamic loops entered; a cache line each

SPINS_BEFORE_SLEEP = 20_000
SPINS_AT_BARRIER = 20_000  # about 0.2 ms, more than load imbalance: a thread has been preempted

JOB_TYPE = ll.FunctionType(VOID, [PTR, I32, I32, PTR])


class TeamRuntime(HostRuntime):
    """Contexts with a worker team; jobs call the kernels of ``mod``."""

    argument = ContextArgument("num_threads", 1, MAX_THREADS, "the system refused memory or threads")
    context_bytes = LOOPS + 64 * MAX_THREADS

    def __init__(self, host: HostModule, mod: IRModule):
        super().__init__(host)
        functions = mod.of_type(PrimFunc).items()
        self.kernels = {name: declare_kernel(host.module, f, name, TEAM_PARAMETERS) for name, f in functions}

    def define(self) -> None:
        self.barrier = self._define_barrier()
        self._define_next_loop()
        self._define_claim()
        self.worker = self._define_worker()
        self.stop = self._define_stop()
        self.start = self._define_start()

    def emit_job(self, name: str, func: Function) -> ll.Function:
        fn = ll.Function(self.module, JOB_TYPE, f"{name}.job")
        fn.linkage = "internal"
        TeamJob(fn, func, self.packed, self.kernels).emit()
        return fn

    def execute(self, b: ll.IRBuilder, context: ll.Value, job: ll.Value, frame: ll.Value) -> None:
        threads = b.load(field(b, context, THREADS), typ=I32)
        b.store(job, field(b, context, JOB))
        b.store(frame, field(b, context, FRAME))
        with b.if_then(b.icmp_unsigned(">", threads, i32(1))):
            self._wake(b, context)
        call_loaded(b, job, JOB_TYPE, [context, i32(0), threads, frame])
        b.call(self.barrier, [context, threads])

    # -- threads ------------------------------------------------------------------------------------------------

    def _pause(self, b: ll.IRBuilder) -> None:
        if self.host.target.arch == "x86_64":
            v.intrinsic(b, "llvm.x86.sse2.pause", [], VOID)
        elif self.host.target.arch == "aarch64":
            v.intrinsic(b, "llvm.aarch64.hint", [i32(1)], VOID)

    def _spin_while_equal(self, b: ll.IRBuilder, address: ll.Value, value: ll.Value, limit: int) -> ll.Value:
        """Spin until ``*address != value`` or for ``limit`` rounds; returns whether the value changed."""
        changed: list[ll.Value] = []

        def waiting(rounds: ll.Value) -> ll.Value:
            changed.append(b.icmp_unsigned("!=", b.load_atomic(address, "acquire", 4, typ=I32), value))
            return b.not_(b.or_(changed[0], b.icmp_unsigned(">=", rounds, i32(limit))))

        def wait(rounds: ll.Value) -> list[ll.Value]:
            self._pause(b)
            return [b.add(rounds, i32(1))]

        while_loop(b, "spin", [i32(0)], waiting, wait)
        return changed[0]

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
        opened = self._spin_while_equal(b, generation_at, generation, SPINS_AT_BARRIER)
        with b.if_then(b.not_(opened)):
            self._sleep_until_changed(b, team, generation_at, generation)
        b.ret_void()
        return fn

    def _define_next_loop(self) -> None:
        """``i32 next_loop(ptr team, i32 thread)``: the number of this thread's next loop, the same in all threads."""
        fn, b = function(self.module, NEXT_LOOP, I32, [PTR, I32])
        fn.linkage = HIDDEN
        at = field(b, fn.args[0], b.add(b.mul(b.zext(fn.args[1], I64), i64(64)), i64(LOOPS)))
        number = b.add(b.load(at, typ=I32), i32(1))
        b.store(number, at)
        b.ret(number)

    def _define_claim(self) -> None:
        """``i64 claim(ptr team, i32 loop, i64 extent)``: the next unclaimed iteration; -1: none is left.

        The counter holds (loop number, claimed iterations). A thread enters a later loop only when all iterations of
        this one are claimed, so a larger number in the counter means none is left, and it is never reset.
        """
        fn, b = function(self.module, CLAIM, I64, [PTR, I32, I64])
        fn.linkage = HIDDEN
        team, loop, extent = fn.args
        at = field(b, team, CLAIMED)
        low, none = i64(0xFFFFFFFF), i64(-1)

        def attempt(seen: ll.Value) -> list[ll.Value]:
            ahead = b.sub(b.trunc(b.lshr(seen, i64(32)), I32), loop)
            claimed = b.select(b.icmp_unsigned("==", ahead, i32(0)), b.and_(seen, low), i64(0))
            over = b.or_(b.icmp_signed(">", ahead, i32(0)), b.icmp_signed(">=", claimed, extent))
            with b.if_then(over):
                b.ret(none)
            next_claim = b.or_(b.shl(b.zext(loop, I64), i64(32)), b.add(claimed, i64(1)))
            swap = b.cmpxchg(at, seen, next_claim, "acq_rel", "acquire")
            with b.if_then(b.extract_value(swap, 1)):
                b.ret(claimed)
            return [b.extract_value(swap, 0)]

        first = b.load_atomic(at, "acquire", 8, typ=I64)
        while_loop(b, "claim", [first], lambda _: ll.Constant(I1, 1), attempt)
        b.unreachable()

    def _define_worker(self) -> ll.Function:
        """``ptr worker(ptr {team, thread})``: until stopped, wait for an epoch, run its job, enter the barrier."""
        fn, b = function(self.module, "mlc_team_worker", PTR, [PTR])
        team = b.load(fn.args[0], typ=PTR)
        thread = b.load(field(b, fn.args[0], 8), typ=I32)
        threads = b.load(field(b, team, THREADS), typ=I32)

        def next_job(last: ll.Value) -> ll.Value:
            epoch_at = field(b, team, EPOCH)
            started = self._spin_while_equal(b, epoch_at, last, SPINS_BEFORE_SLEEP)
            with b.if_then(b.not_(started)):
                self._sleep_until_changed(b, team, epoch_at, last)
            return b.icmp_unsigned("==", b.load_atomic(field(b, team, STOP), "acquire", 4, typ=I32), i32(0))

        def run(last: ll.Value) -> list[ll.Value]:
            job, frame = (b.load(field(b, team, offset), typ=PTR) for offset in (JOB, FRAME))
            call_loaded(b, job, JOB_TYPE, [team, thread, threads, frame])
            b.call(self.barrier, [team, threads])
            return [b.add(last, i32(1))]

        while_loop(b, "epoch", [i32(0)], next_job, run)
        b.ret(ll.Constant(PTR, None))
        return fn

    def _sleep_until_changed(self, b: ll.IRBuilder, team: ll.Value, address: ll.Value, last: ll.Value) -> None:
        """Sleep until ``*address != last``; the writer of ``*address`` must call ``_wake_sleepers`` afterwards."""
        mutex, condition = field(b, team, MUTEX), field(b, team, CONDITION)
        self._pthread(b, "pthread_mutex_lock", mutex)
        b.atomic_rmw("add", field(b, team, SLEEPERS), i32(1), "seq_cst")

        def unchanged() -> ll.Value:
            return b.icmp_unsigned("==", b.load_atomic(address, "seq_cst", 4, typ=I32), last)

        def wait() -> list[ll.Value]:
            b.call(external(self.module, "pthread_cond_wait", I32, [PTR, PTR]), [condition, mutex])
            return []

        while_loop(b, "sleep", [], unchanged, wait)
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
        """``i32 start(ptr team, i32 threads)``: start the workers; 1, or 0 when a thread cannot be created."""
        fn, b = function(self.module, "mlc_team_start", I32, [PTR, I32])
        team, threads = fn.args
        for offset in (STOP, EPOCH, ARRIVED, SLEEPERS):
            store_atomic(b, i32(0), field(b, team, offset))
        for name, offset in (("pthread_mutex_init", MUTEX), ("pthread_cond_init", CONDITION)):
            b.call(external(self.module, name, I32, [PTR, PTR]), [field(b, team, offset), ll.Constant(PTR, None)])
        b.store(i64(0), field(b, team, CLAIMED))
        size = i64(64 * MAX_THREADS)
        b.call(external(self.module, "memset", PTR, [PTR, I32, I64]), [field(b, team, LOOPS), i32(0), size])
        b.store(threads, field(b, team, THREADS))
        create = external(self.module, "pthread_create", I32, [PTR, PTR, PTR, PTR])

        def start_worker(thread: ll.Value) -> None:
            pair = field(b, team, b.add(b.mul(thread, i64(16)), i64(START)))
            number = b.trunc(thread, I32)
            b.store(team, pair)
            b.store(number, field(b, pair, 8))
            handle = field(b, team, b.add(b.mul(thread, i64(8)), i64(HANDLES)))
            status = b.call(create, [handle, ll.Constant(PTR, None), self.worker, pair])
            with b.if_then(b.icmp_signed("!=", status, i32(0))):
                b.store(number, field(b, team, THREADS))
                b.call(self.stop, [team])
                b.ret(i32(0))

        for_range(b, "start", i64(1), b.zext(threads, I64), start_worker)
        b.ret(i32(1))
        return fn

    def _define_stop(self) -> ll.Function:
        """``void stop(ptr team)``: end and join the workers."""
        fn, b = function(self.module, "mlc_team_stop", VOID, [PTR])
        team = fn.args[0]
        store_atomic(b, i32(1), field(b, team, STOP), "acq_rel")
        self._wake(b, team)
        join = external(self.module, "pthread_join", I32, [I64, PTR])

        def join_worker(thread: ll.Value) -> None:
            handle = b.load(field(b, team, b.add(b.mul(thread, i64(8)), i64(HANDLES))), typ=I64)
            b.call(join, [handle, ll.Constant(PTR, None)])

        for_range(b, "join", i64(1), b.zext(b.load(field(b, team, THREADS), typ=I32), I64), join_worker)
        b.ret_void()
        return fn
