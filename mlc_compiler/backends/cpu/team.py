"""The worker team of a context: its threads, the division of loops among them, barriers, and the job loop.

The calling thread is thread 0; workers spin for a job for a short while and then sleep. A job is ``void job(ptr team,
i32 thread, i32 threads, ptr frame)``, run by thread 0 and by workers that arrive while it is open.

No thread waits for one that is not scheduled, unless that one has begun a piece of the loop. All threads run through
the same loops, numbered in order. A loop's iterations are divided into a part for each thread, and each part into
pieces. A thread claims the pieces of its own part, then those that are left of others. A barrier is passed when the
iterations of all loops that have begun are done. A thread that comes to a loop after a later one has begun skips it.

``BEGUN`` holds the iterations of all loops so far, above the number of the last one; ``DONE`` the iterations done.
Both count on from job to job. Differences of counters are signed, so that they may overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...codegen import llvm_ir as ll
from ...codegen import values as v
from ...codegen.host.code import HIDDEN, external, field, function, store_atomic
from ...codegen.host.contexts import HEAD_BYTES, ContextArgument, HostRuntime
from ...codegen.host.module import HostModule, new_module
from ...codegen.loops import for_range, while_loop
from ...codegen.statements import declare_kernel
from ...codegen.values import I1, I32, I64, PTR, VOID, i32, i64
from ...ir.module import IRModule
from ...relax.nodes import Function
from ...tir.nodes import PrimFunc
from .jobs import TeamJob
from .kernels import BARRIER, BEGIN, CLAIM, FINISH, NEXT_LOOP, ON_TIME, TEAM_PARAMETERS, runtime_function

# Byte offsets of the team's fields in a context; fields that are written while a job runs have a cache line each.
THREADS, JOB, FRAME, FIRST_LOOP = (HEAD_BYTES + offset for offset in (0, 8, 16, 24))
ACTIVE, EPOCH = HEAD_BYTES + 64, HEAD_BYTES + 68  # workers inside of the job; odd while a job is open to workers
STOP = HEAD_BYTES + 72  # beside the epoch: waiting workers read both
BEGUN, DONE, SLEEPERS = (HEAD_BYTES + 64 * line for line in (2, 3, 4))
MUTEX, CONDITION = HEAD_BYTES + 320, HEAD_BYTES + 448
HANDLES = HEAD_BYTES + 640
MAX_THREADS = 256
START = HANDLES + 8 * MAX_THREADS  # one {team, thread} pair for each worker
LOOPS = START + 16 * MAX_THREADS  # of each thread, the number of its loop
CLAIMED = LOOPS + 64 * MAX_THREADS  # of each thread's part of the loop: number of the loop, claimed units, 32 bits each

SPINS_BEFORE_SLEEP = 20_000
SPINS_AT_BARRIER = 2_000  # about as long as waking a thread takes
MIN_PIECES = 8  # of a part: a thread that is interrupted in a piece keeps the others waiting for it
LOOP_BITS = 24  # of ``BEGUN``; the other bits count iterations
UNIT_BITS = 16  # of a unit of iterations, in parts whose iterations do not fit a counter in ``CLAIMED``

# Byte offsets in a ``piece``, the state of a thread in a loop.
PIECE_BEGIN, PIECE_END, PIECE_STEP, PIECE_DONE = 0, 8, 16, 24

JOB_TYPE = ll.FunctionType(VOID, [PTR, I32, I32, PTR])


class TeamRuntime(HostRuntime):
    """Contexts with a worker team; jobs call the kernels of ``mod``. The team's functions have their own module."""

    argument = ContextArgument("num_threads", 1, MAX_THREADS, "the system refused memory or threads")
    context_bytes = CLAIMED + 64 * MAX_THREADS

    def __init__(self, host: HostModule, mod: IRModule):
        self.team = new_module(host.target)
        super().__init__(host)
        functions = mod.of_type(PrimFunc).items()
        self.kernels = {name: declare_kernel(host.module, f, name, TEAM_PARAMETERS) for name, f in functions}

    def define(self) -> None:
        self.barrier = self._define_barrier()
        self.finish = self._define_finish()
        self.take = self._define_take()
        self._define_on_time()
        self._define_next_loop()
        self._define_begin()
        self._define_claim()
        self.enter = self._define_enter()
        self.close = self._define_close()
        self.worker = self._define_worker()
        self.stop_workers = self._define_stop()
        defined = (self._define_start(), self.stop_workers, self._define_execute_job())
        self.start, self.stop, self.execute_job = (
            runtime_function(self.module, fn.name, fn.function_type.return_type, fn.function_type.args)
            for fn in defined
        )

    def emit_job(self, name: str, func: Function) -> ll.Function:
        fn = ll.Function(self.module, JOB_TYPE, f"{name}.job")
        fn.linkage = "internal"
        TeamJob(fn, func, self.packed, self.kernels).emit()
        return fn

    def further_modules(self) -> Iterator[str]:
        yield str(self.team)

    def execute(self, b: ll.IRBuilder, context: ll.Value, job: ll.Value, frame: ll.Value) -> None:
        b.call(self.execute_job, [context, job, frame])

    # -- threads ------------------------------------------------------------------------------------------------

    def _pause(self, b: ll.IRBuilder) -> None:
        if self.host.target.arch == "x86_64":
            v.intrinsic(b, "llvm.x86.sse2.pause", [], VOID)
        elif self.host.target.arch == "aarch64":
            v.intrinsic(b, "llvm.aarch64.hint", [i32(1)], VOID)

    def _wait_while(self, b: ll.IRBuilder, team: ll.Value, condition: Callable[[], ll.Value], spins: int) -> None:
        """Wait while a condition holds: spin that many rounds, then sleep; see ``_sleep_while``."""

        def waiting(rounds: ll.Value) -> ll.Value:
            return b.and_(condition(), b.icmp_unsigned("<", rounds, i32(spins)))

        def wait(rounds: ll.Value) -> list[ll.Value]:
            self._pause(b)
            return [b.add(rounds, i32(1))]

        while_loop(b, "spin", [i32(0)], waiting, wait)
        with b.if_then(condition()):
            self._sleep_while(b, team, condition)

    def _define_barrier(self) -> ll.Function:
        """``void barrier(ptr team, i32 thread)``: wait until the iterations of all loops so far are done."""
        fn, b = self._shared_function(BARRIER, VOID, [PTR, I32])
        team, thread = fn.args
        begun = b.load_atomic(field(b, team, BEGUN), "acquire", 8, typ=I64)
        with b.if_then(b.icmp_signed(">", self._ahead(b, begun, self._loop(b, team, thread)), i32(0))):
            b.ret_void()

        self._wait_while(b, team, lambda: b.not_(self._all_done(b, team, begun)), SPINS_AT_BARRIER)
        b.ret_void()
        return fn

    def _all_done(self, b: ll.IRBuilder, team: ll.Value, begun: ll.Value) -> ll.Value:
        """Whether the iterations counted in a value of ``BEGUN`` are done."""
        done = b.shl(b.load_atomic(field(b, team, DONE), "seq_cst", 8, typ=I64), i64(LOOP_BITS))
        return b.icmp_signed(">=", b.sub(done, b.and_(begun, i64(-1 << LOOP_BITS))), i64(0))

    def _loop(self, b: ll.IRBuilder, team: ll.Value, thread: ll.Value) -> ll.Value:
        """The number of a thread's loop."""
        return b.load(self._line(b, team, LOOPS, thread), typ=I32)

    def _line(self, b: ll.IRBuilder, team: ll.Value, offset: int, thread: ll.Value) -> ll.Value:
        """The address of a thread's cache line."""
        return field(b, team, b.add(b.mul(b.zext(thread, I64), i64(64)), i64(offset)))

    def _ahead(self, b: ll.IRBuilder, begun: ll.Value, number: ll.Value) -> ll.Value:
        """How many loops the last one in a value of ``BEGUN`` is ahead of ``number``: i32, in the highest bits."""
        unused = i32(32 - LOOP_BITS)
        return b.sub(b.shl(b.trunc(begun, I32), unused), b.shl(number, unused))

    def _shared_function(self, name: str, result: ll.Type, args: list[ll.Type]) -> tuple[ll.Function, ll.IRBuilder]:
        """Define a function that other modules call."""
        fn, b = function(self.team, name, result, args)
        fn.linkage = HIDDEN
        return fn, b

    def _define_on_time(self) -> None:
        """``i1 on_time(ptr team, i32 thread)``: false where a loop after the thread's next one has begun."""
        fn, b = self._shared_function(ON_TIME, I1, [PTR, I32])
        team, thread = fn.args
        begun = b.load_atomic(field(b, team, BEGUN), "acquire", 8, typ=I64)
        b.ret(b.icmp_signed("<=", self._ahead(b, begun, b.add(self._loop(b, team, thread), i32(1))), i32(0)))

    def _define_next_loop(self) -> None:
        """``i1 next_loop(ptr team, i32 thread)``: go on to the next loop; false where a later one has begun."""
        fn, b = self._shared_function(NEXT_LOOP, I1, [PTR, I32])
        team, thread = fn.args
        number = b.add(self._loop(b, team, thread), i32(1))
        b.store(number, self._line(b, team, LOOPS, thread))
        begun = b.load_atomic(field(b, team, BEGUN), "acquire", 8, typ=I64)
        b.ret(b.icmp_signed("<=", self._ahead(b, begun, number), i32(0)))

    def _define_begin(self) -> None:
        """``i1 begin(ptr team, i32 thread, i64 extent, ptr piece)``: begin the thread's loop, or join it.

        False where a later loop has begun: memory that ``extent`` was computed from may have been overwritten then.
        """
        fn, b = self._shared_function(BEGIN, I1, [PTR, I32, I64, PTR])
        team, thread, extent, piece = fn.args
        at, number = field(b, team, BEGUN), self._loop(b, team, thread)
        for offset in (PIECE_BEGIN, PIECE_END, PIECE_STEP, PIECE_DONE):
            b.store(i64(0), field(b, piece, offset))
        iterations = b.shl(b.select(b.icmp_signed(">", extent, i64(0)), extent, i64(0)), i64(LOOP_BITS))
        low = b.zext(b.and_(number, i32((1 << LOOP_BITS) - 1)), I64)

        def attempt(seen: ll.Value) -> list[ll.Value]:
            ahead = self._ahead(b, seen, number)
            with b.if_then(b.icmp_signed(">=", ahead, i32(0))):
                b.ret(b.icmp_signed("==", ahead, i32(0)))
            total = b.add(b.and_(seen, i64(-1 << LOOP_BITS)), iterations)
            swap = b.cmpxchg(at, seen, b.or_(total, low), "acq_rel", "acquire")
            with b.if_then(b.extract_value(swap, 1)):
                b.ret(ll.Constant(I1, 1))
            return [b.extract_value(swap, 0)]

        first = b.load_atomic(at, "acquire", 8, typ=I64)
        while_loop(b, "begin", [first], lambda _: ll.Constant(I1, 1), attempt)
        b.unreachable()

    def _define_take(self) -> ll.Function:
        """``i64 take(ptr counter, i32 loop, i64 length, i64 least, i64 most)``: claim the next piece of a part.

        Returns its first unit, counted within the part of ``length`` units; -1: none is left. ``least`` and ``most``:
        see ``_size``. The counter holds (number of the loop, claimed units). A later loop has begun only when all
        pieces of this one are claimed, so a later number in the counter means that none is left, and the counter is
        never reset.
        """
        fn, b = function(self.team, "mlc_team_take", I64, [PTR, I32, I64, I64, I64])
        at, loop, length, least, most = fn.args
        low, none = i64(0xFFFFFFFF), i64(-1)

        def attempt(seen: ll.Value) -> list[ll.Value]:
            ahead = b.sub(b.trunc(b.lshr(seen, i64(32)), I32), loop)
            claimed = b.select(b.icmp_unsigned("==", ahead, i32(0)), b.and_(seen, low), i64(0))
            left = b.sub(length, claimed)
            over = b.or_(b.icmp_signed(">", ahead, i32(0)), b.icmp_signed("<=", left, i64(0)))
            with b.if_then(over):
                b.ret(none)
            claims = b.add(claimed, self._size(b, left, least, most))
            swap = b.cmpxchg(at, seen, b.or_(b.shl(b.zext(loop, I64), i64(32)), claims), "acq_rel", "acquire")
            with b.if_then(b.extract_value(swap, 1)):
                b.ret(claimed)
            return [b.extract_value(swap, 0)]

        first = b.load_atomic(at, "acquire", 8, typ=I64)
        while_loop(b, "take", [first], lambda _: ll.Constant(I1, 1), attempt)
        b.unreachable()
        return fn

    def _size(self, b: ll.IRBuilder, left: ll.Value, least: ll.Value, most: ll.Value) -> ll.Value:
        """Units of the next piece of a part with ``left`` unclaimed ones: half of them, from least to most."""
        half = b.sdiv(b.add(left, i64(1)), i64(2))
        size = b.select(b.icmp_signed("<", half, most), half, most)
        return b.select(b.icmp_signed(">", size, least), size, least)

    def _define_claim(self) -> None:
        """``i1 claim(ptr team, i32 thread, i32 threads, i64 extent, i64 grain, ptr piece)``: the loop's next piece.

        False when none is left; this thread's iterations are then counted as done. grain: units of a piece; 0 divides
        each part into ``MIN_PIECES`` or more, the last of which become smaller. A unit is an iteration, or
        ``1 << UNIT_BITS`` of them in very long parts. One thread takes all iterations at once.
        """
        fn, b = self._shared_function(CLAIM, I1, [PTR, I32, I32, I64, I64, PTR])
        team, thread, threads, extent, grain, piece = fn.args
        number, wide = self._loop(b, team, thread), b.zext(threads, I64)
        begin_at, end_at, step_at, done_at = (
            field(b, piece, offset) for offset in (PIECE_BEGIN, PIECE_END, PIECE_STEP, PIECE_DONE)
        )
        last = b.sub(b.load(end_at, typ=I64), b.load(begin_at, typ=I64))
        done = b.add(b.load(done_at, typ=I64), last)
        b.store(done, done_at)

        def look(step: ll.Value) -> list[ll.Value]:
            owner = b.urem(b.add(b.zext(thread, I64), step), wide)
            start = b.sdiv(b.mul(extent, owner), wide)
            end = b.sdiv(b.mul(extent, b.add(owner, i64(1))), wide)
            iterations = b.sub(end, start)
            unit = b.select(b.icmp_signed("<", iterations, i64(1 << 32)), i64(0), i64(UNIT_BITS))
            length = b.lshr(b.add(iterations, b.sub(b.shl(i64(1), unit), i64(1))), unit)
            share = b.sdiv(b.add(length, i64(MIN_PIECES - 1)), i64(MIN_PIECES))
            most = b.select(b.icmp_signed(">", grain, i64(0)), grain, share)
            least = b.select(b.icmp_unsigned("==", threads, i32(1)), length, i64(1))
            counter = self._line(b, team, CLAIMED, b.trunc(owner, I32))
            taken = b.call(self.take, [counter, number, length, least, most])
            with b.if_then(b.icmp_signed(">=", taken, i64(0))):
                past = b.add(taken, self._size(b, b.sub(length, taken), least, most))
                past = b.add(start, b.shl(past, unit))
                b.store(b.add(start, b.shl(taken, unit)), begin_at)
                b.store(b.select(b.icmp_signed("<", past, end), past, end), end_at)
                b.store(step, step_at)
                b.ret(ll.Constant(I1, 1))
            return [b.add(step, i64(1))]

        while_loop(b, "part", [b.load(step_at, typ=I64)], lambda step: b.icmp_signed("<", step, wide), look)
        b.call(self.finish, [team, done])
        b.ret(ll.Constant(I1, 0))

    def _define_finish(self) -> ll.Function:
        """``void finish(ptr team, i64 iterations)``: count iterations as done; wake sleeping threads after the last."""
        fn, b = self._shared_function(FINISH, VOID, [PTR, I64])
        team, iterations = fn.args
        with b.if_then(b.icmp_signed("==", iterations, i64(0))):
            b.ret_void()
        b.atomic_rmw("add", field(b, team, DONE), iterations, "seq_cst")
        begun = b.load_atomic(field(b, team, BEGUN), "seq_cst", 8, typ=I64)
        with b.if_then(self._all_done(b, team, begun)):
            self._wake_sleepers(b, team)
        b.ret_void()
        return fn

    def _define_enter(self) -> ll.Function:
        """``i64 enter(ptr team)``: count a worker as active if a job is open; returns (epoch, active workers)."""
        fn, b = function(self.team, "mlc_team_enter", I64, [PTR])
        at = field(b, fn.args[0], ACTIVE)

        def attempt(seen: ll.Value) -> list[ll.Value]:
            with b.if_then(b.icmp_unsigned("==", b.and_(seen, i64(1 << 32)), i64(0))):
                b.ret(seen)
            swap = b.cmpxchg(at, seen, b.add(seen, i64(1)), "acq_rel", "acquire")
            with b.if_then(b.extract_value(swap, 1)):
                b.ret(seen)
            return [b.extract_value(swap, 0)]

        first = b.load_atomic(at, "acquire", 8, typ=I64)
        while_loop(b, "enter", [first], lambda _: ll.Constant(I1, 1), attempt)
        b.unreachable()
        return fn

    def _define_worker(self) -> ll.Function:
        """``ptr worker(ptr {team, thread})``: until stopped, wait for an epoch and run its job.

        ``stop`` may come between any two steps; ``STOP`` counts even if the last epoch has been seen already.
        """
        fn, b = function(self.team, "mlc_team_worker", PTR, [PTR])
        team = b.load(fn.args[0], typ=PTR)
        thread = b.load(field(b, fn.args[0], 8), typ=I32)
        threads = b.load(field(b, team, THREADS), typ=I32)

        def next_job(last: ll.Value) -> ll.Value:
            goes_on = lambda: b.icmp_unsigned("==", self._stopped(b, team), i32(0))  # noqa: E731
            same = lambda: b.icmp_unsigned("==", self._epoch(b, team), last)  # noqa: E731
            self._wait_while(b, team, lambda: b.and_(same(), goes_on()), SPINS_BEFORE_SLEEP)
            return goes_on()

        def run(_: ll.Value) -> list[ll.Value]:
            state = b.call(self.enter, [team])
            epoch = b.trunc(b.lshr(state, i64(32)), I32)
            with b.if_then(b.trunc(epoch, I1)):
                b.store(b.load(field(b, team, FIRST_LOOP), typ=I32), self._line(b, team, LOOPS, thread))
                job, frame = (b.load(field(b, team, offset), typ=PTR) for offset in (JOB, FRAME))
                b.call_pointer(job, JOB_TYPE, [team, thread, threads, frame])
                b.atomic_rmw("sub", field(b, team, ACTIVE), i32(1), "seq_cst")
                self._wake_sleepers(b, team)
            return [epoch]

        while_loop(b, "epoch", [i32(0)], next_job, run)
        b.ret(ll.Constant(PTR, None))
        return fn

    def _stopped(self, b: ll.IRBuilder, team: ll.Value) -> ll.Value:
        return b.load_atomic(field(b, team, STOP), "seq_cst", 4, typ=I32)

    def _epoch(self, b: ll.IRBuilder, team: ll.Value) -> ll.Value:
        return b.load_atomic(field(b, team, EPOCH), "seq_cst", 4, typ=I32)

    def _sleep_while(self, b: ll.IRBuilder, team: ll.Value, condition: Callable[[], ll.Value]) -> None:
        """Sleep while a condition holds; code that changes the condition must call ``_wake_sleepers`` afterwards."""
        mutex, condition_at = field(b, team, MUTEX), field(b, team, CONDITION)
        self._pthread(b, "pthread_mutex_lock", mutex)
        b.atomic_rmw("add", field(b, team, SLEEPERS), i32(1), "seq_cst")

        def wait() -> list[ll.Value]:
            b.call(external(self.team, "pthread_cond_wait", I32, [PTR, PTR]), [condition_at, mutex])
            return []

        while_loop(b, "sleep", [], condition, wait)
        b.atomic_rmw("sub", field(b, team, SLEEPERS), i32(1), "seq_cst")
        self._pthread(b, "pthread_mutex_unlock", mutex)

    def _pthread(self, b: ll.IRBuilder, name: str, argument: ll.Value) -> None:
        b.call(external(self.team, name, I32, [PTR]), [argument])

    def _change_epoch(self, b: ll.IRBuilder, team: ll.Value) -> None:
        """Open a job to workers, or close it."""
        b.atomic_rmw("add", field(b, team, EPOCH), i32(1), "seq_cst")

    def _define_close(self) -> ll.Function:
        """``void close(ptr team)``: let no more workers into the job, and wait for those that are inside."""
        fn, b = function(self.team, "mlc_team_close", VOID, [PTR])
        team = fn.args[0]
        self._change_epoch(b, team)

        def active() -> ll.Value:
            return b.icmp_unsigned("!=", b.load_atomic(field(b, team, ACTIVE), "seq_cst", 4, typ=I32), i32(0))

        self._wait_while(b, team, active, SPINS_AT_BARRIER)
        b.ret_void()
        return fn

    def _wake_sleepers(self, b: ll.IRBuilder, team: ll.Value) -> None:
        sleepers = b.load_atomic(field(b, team, SLEEPERS), "seq_cst", 4, typ=I32)
        with b.if_then(b.icmp_unsigned("!=", sleepers, i32(0))):
            self._pthread(b, "pthread_mutex_lock", field(b, team, MUTEX))
            self._pthread(b, "pthread_cond_broadcast", field(b, team, CONDITION))
            self._pthread(b, "pthread_mutex_unlock", field(b, team, MUTEX))

    def _define_execute_job(self) -> ll.Function:
        """``void execute_job(ptr team, ptr job, ptr frame)``: run a job as thread 0, and wait until it is done."""
        fn, b = self._shared_function("mlc_team_execute_job", VOID, [PTR, PTR, PTR])
        team, job, frame = fn.args
        threads, thread = b.load(field(b, team, THREADS), typ=I32), i32(0)
        several = b.icmp_unsigned(">", threads, i32(1))
        b.store(job, field(b, team, JOB))
        b.store(frame, field(b, team, FRAME))
        b.store(self._loop(b, team, thread), field(b, team, FIRST_LOOP))
        with b.if_then(several):
            self._change_epoch(b, team)
            self._wake_sleepers(b, team)
        b.call_pointer(job, JOB_TYPE, [team, thread, threads, frame])
        b.call(self.barrier, [team, thread])
        with b.if_then(several):
            b.call(self.close, [team])
        b.ret_void()
        return fn

    def _define_start(self) -> ll.Function:
        """``i32 start(ptr team, i32 threads)``: start the workers; 1, or 0 when a thread cannot be created."""
        fn, b = self._shared_function("mlc_team_start", I32, [PTR, I32])
        team, threads = fn.args
        for offset in (STOP, ACTIVE, EPOCH, SLEEPERS):
            store_atomic(b, i32(0), field(b, team, offset))
        for offset in (BEGUN, DONE):
            store_atomic(b, i64(0), field(b, team, offset))
        for name, offset in (("pthread_mutex_init", MUTEX), ("pthread_cond_init", CONDITION)):
            b.call(external(self.team, name, I32, [PTR, PTR]), [field(b, team, offset), ll.Constant(PTR, None)])
        size = i64(2 * 64 * MAX_THREADS)
        b.call(external(self.team, "memset", PTR, [PTR, I32, I64]), [field(b, team, LOOPS), i32(0), size])
        b.store(threads, field(b, team, THREADS))
        create = external(self.team, "pthread_create", I32, [PTR, PTR, PTR, PTR])

        def start_worker(thread: ll.Value) -> None:
            pair = field(b, team, b.add(b.mul(thread, i64(16)), i64(START)))
            number = b.trunc(thread, I32)
            b.store(team, pair)
            b.store(number, field(b, pair, 8))
            handle = field(b, team, b.add(b.mul(thread, i64(8)), i64(HANDLES)))
            status = b.call(create, [handle, ll.Constant(PTR, None), self.worker, pair])
            with b.if_then(b.icmp_signed("!=", status, i32(0))):
                b.store(number, field(b, team, THREADS))
                b.call(self.stop_workers, [team])
                b.ret(i32(0))

        for_range(b, "start", i64(1), b.zext(threads, I64), start_worker)
        b.ret(i32(1))
        return fn

    def _define_stop(self) -> ll.Function:
        """``void stop(ptr team)``: end and join the workers, of which none enters a job any more."""
        fn, b = self._shared_function("mlc_team_stop", VOID, [PTR])
        team = fn.args[0]
        b.atomic_rmw("xchg", field(b, team, STOP), i32(1), "seq_cst")
        self._wake_sleepers(b, team)
        join = external(self.team, "pthread_join", I32, [I64, PTR])

        def join_worker(thread: ll.Value) -> None:
            handle = b.load(field(b, team, b.add(b.mul(thread, i64(8)), i64(HANDLES))), typ=I64)
            b.call(join, [handle, ll.Constant(PTR, None)])

        for_range(b, "join", i64(1), b.zext(b.load(field(b, team, THREADS), typ=I32), I64), join_worker)
        b.ret_void()
        return fn
