"""Child processes that run jobs under a time limit."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from mlc_errors import ResourceError

from ..codegen.llvm_worker import receive, send
from .worker import Failed, Job

_START = "import sys; sys.path[:] = {path!r}; from mlc_compiler.tuning.worker import main; main()"
SECONDS_TO_START = 60.0
TIME_LIMIT = "time limit"


class WorkerProcess:
    """A child process, started at the first job and again after it died or was killed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._deadline = 0.0

    def begin(self, job: Job, seconds: float) -> None:
        """Send a job with a time limit in seconds to the process; ``finish`` waits for it."""
        started = self._process is None
        process = self._running()
        self._deadline = time.monotonic() + seconds + (SECONDS_TO_START if started else 0.0)
        assert process.stdin is not None
        try:
            send(process.stdin, job)
        except OSError:
            self._deadline = 0.0  # it died; finish says how

    def finish(self) -> Any:
        """Wait for the reply to the job; a Failed when the job failed, crashed the process or exceeded the limit."""
        process = self._process
        assert process is not None and process.stdout is not None
        left = self._deadline - time.monotonic()
        if self._deadline and not select.select([process.stdout], [], [], max(0.0, left))[0]:
            self.stop()
            return Failed(TIME_LIMIT)
        try:
            return receive(process.stdout)
        except (EOFError, OSError):
            code = process.wait()
            self.stop()
            return Failed(f"crash: {signal.Signals(-code).name if code < 0 else f'exit code {code}'}")

    def do(self, job: Job, seconds: float) -> Any:
        """``begin``, then ``finish``."""
        self.begin(job, seconds)
        return self.finish()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            command = [sys.executable, "-c", _START.format(path=sys.path)]
            pipe = subprocess.PIPE
            try:
                self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)
            except OSError as error:
                raise ResourceError(f"tuning: cannot start a process: {error}") from None
        return self._process

    def stop(self) -> None:
        """Kill the process."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with suppress(OSError):
                stream.close()


class Processes:
    """A pool of child processes that compile; one of them also runs the results."""

    def __init__(self, builders: int | None = None):
        count = builders or max(1, min(4, len(os.sched_getaffinity(0))))
        self.builders = [WorkerProcess() for _ in range(count)]
        self.runner = self.builders[0]

    def build(self, jobs: Sequence[Job], seconds: float) -> list[Any]:
        """Run jobs in parallel and return the replies; ``seconds``: time limit of each."""
        replies: list[Any] = []
        for start in range(0, len(jobs), len(self.builders)):
            batch = list(zip(self.builders, jobs[start : start + len(self.builders)]))
            for process, job in batch:
                process.begin(job, seconds)
            replies += [process.finish() for process, _ in batch]
        return replies

    def stop(self) -> None:
        """Kill all processes."""
        for process in self.builders:
            process.stop()

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
