"""Pool of LLVM worker processes, reused between compilations: at most one per core."""

from __future__ import annotations

import atexit
import errno
import os
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache

from mlc_errors import MLCError, out_of_memory

from ..target import available_cores
from .arithmetic import CodegenError
from .llvm_worker import Reply, Request, compile_text, receive, send

MAX_PROCESSES = 16
KEPT = 32  # modules in the cache of ``ThisProcess``
OUT_OF_MEMORY = ("out of memory", "bad_alloc", "MemoryError", "Cannot allocate memory", "failed to map segment")
"""In the output of a worker: of LLVM, of C++, and of Python and of the system when a module cannot be loaded."""
_START = "import sys; sys.path[:] = {path!r}; from mlc_compiler.codegen.llvm_worker import main; main()"


class LLVMProcess:
    """One worker process, started on the first request at the latest, and again after it has died."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as this)

    def run(self, request: Request) -> Reply:
        """Compile in the process. Raises CodegenError when LLVM aborts it, ResourceError where it lacks memory."""
        process = self.start()
        if process is None:
            return compile_text(request)
        assert process.stdin is not None and process.stdout is not None
        try:
            send(process.stdin, request)
            reply = receive(process.stdout)
        except (EOFError, OSError):
            raise self._died(process) from None
        assert isinstance(reply, Reply)
        return reply

    def start(self) -> subprocess.Popen[bytes] | None:
        """Start the process if it does not run, and return it; None when no process can be started."""
        if self.process is None and sys.executable:
            command = [sys.executable, "-c", _START.format(path=sys.path)]
            pipe = subprocess.PIPE
            try:
                self.process = subprocess.Popen(
                    command, stdin=pipe, stdout=pipe, stderr=self.errors, start_new_session=True
                )
            except OSError as error:
                if error.errno == errno.ENOMEM:
                    raise out_of_memory(str(error)) from None
                return None
        return self.process

    def _died(self, process: subprocess.Popen[bytes]) -> MLCError:
        self.process = None
        code = process.wait()
        self.errors.seek(0)
        output = self.errors.read().decode(errors="replace").strip().splitlines()[:4]
        self.errors.seek(0)
        self.errors.truncate(0)
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        if said := [line for line in output if any(words in line for words in OUT_OF_MEMORY)]:
            return out_of_memory(f"LLVM stopped with {how}: {said[0]}")
        hint = (
            "the system ends processes so when memory is short: close other programs"
            if code == -signal.SIGKILL
            else None
        )
        return CodegenError(f"LLVM stopped with {how}; expected object code", where=output, hint=hint)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class Workers:
    """Compiles modules concurrently in worker processes; replies do not depend on the number of processes."""

    def __init__(self, count: int | None = None):
        self.count = min(count or available_cores(), MAX_PROCESSES)
        self.own = threading.local()
        self.all: list[LLVMProcess] = []
        self.idle: list[LLVMProcess] = []
        self.executor = ThreadPoolExecutor(self.count, "llvm")

    def start(self, processes: int) -> None:
        """Start worker processes that are missing, up to this number: they load LLVM while this process goes on."""
        for _ in range(min(processes, self.count) - len(self.all)):
            self.idle.append(self._new())
            self.idle[-1].start()

    def submit(self, request: Request) -> Future[Reply]:
        return self.executor.submit(self._run, request)

    def _new(self) -> LLVMProcess:
        process = LLVMProcess()
        self.all.append(process)
        return process

    def _run(self, request: Request) -> Reply:
        if not hasattr(self.own, "process"):
            try:
                self.own.process = self.idle.pop()
            except IndexError:
                self.own.process = self._new()
        process: LLVMProcess = self.own.process
        return process.run(request)

    def stop(self) -> None:
        """Kill the processes."""
        self.executor.shutdown(wait=False, cancel_futures=True)
        for process in self.all:
            process.stop()


class ThisProcess(Workers):
    """Compiles in the calling process, which LLVM aborts on fatal errors.

    It caches the last replies: libraries of the same function differ in their kernels, but seldom in the host's code.
    """

    def __init__(self) -> None:
        super().__init__(1)
        self._compile = lru_cache(maxsize=KEPT)(compile_text)

    def start(self, processes: int) -> None:
        """Do nothing: there are no processes to start."""

    def submit(self, request: Request) -> Future[Reply]:
        done: Future[Reply] = Future()
        done.set_result(self._compile(request))
        return done


_shared: Workers | None = None


def compile_here() -> None:
    """Make all later compilations of this process run LLVM in the process itself."""
    global _shared
    _shared = ThisProcess()


def shared() -> Workers:
    """The pool shared by all compilations of this process."""
    global _shared
    if _shared is None:
        _shared = Workers()
        atexit.register(_shared.stop)
    return _shared


def _forget() -> None:
    """Drop the pool in a forked child, which has no threads for it and must not read from the parent's workers."""
    global _shared
    if _shared is not None:
        atexit.unregister(_shared.stop)
    _shared = None


os.register_at_fork(after_in_child=_forget)
