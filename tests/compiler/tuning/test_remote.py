"""Measurement by the workers of a Dask cluster: a scheduler in this process, and a worker process."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dask
import pytest
from distributed import LocalCluster

from mlc_compiler.target import Target
from mlc_compiler.tir.schedule import Schedule
from mlc_compiler.tuning import remote
from mlc_compiler.tuning.database import Database
from mlc_compiler.tuning.measure import Limits, Ready, Trial
from mlc_compiler.tuning.processes import Processes
from mlc_compiler.tuning.remote import RemoteMeasurer, Workers
from mlc_compiler.tuning.search import Search
from mlc_compiler.tuning.space import Candidate, ScheduleFn
from mlc_compiler.tuning.strategies import RandomSearch
from mlc_compiler.tuning.task import Task
from mlc_errors import MLCError, ResourceError, UnsupportedError
from tests.compiler.tuning.spaces import CPU, DEFECTS, scaled, with_defects

PATIENT = Limits(build=600.0, run=600.0, turns=2)  # which no candidate of a busy machine exceeds
TASK = Task("f", scaled(), CPU)


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    """One worker, whose death ends the trial that it makes."""
    once = {"distributed.scheduler.allowed-failures": 0}
    with (
        dask.config.set(once),
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
    ):
        connected = Workers(cluster.scheduler_address)
        yield connected
        connected.close()


def candidate(which: int) -> Candidate:
    """The function itself, or one of its defects."""
    made = ScheduleFn(with_defects).candidate(TASK, 0, [which])
    assert made is not None
    return made


def wrong_or_crash(s: Schedule) -> None:
    which = s.sample_categorical([0, 1, 2], [1 / 3] * 3, decision=0)
    if which:
        s.func = DEFECTS["wrong" if which == 1 else "crash"](s.func)


def test_defective_candidates_are_not_chosen(workers: Workers, tmp_path: Path) -> None:
    space, none = ScheduleFn(wrong_or_crash), Processes(1)
    run = Search(TASK, space, Database(), none, tmp_path, RandomSearch(), PATIENT, measuring=workers.measurer)
    run.run(3)
    failures = {t.candidate.decisions[0]: t.failure for t in run.history.trials}
    assert failures[0] == "" and failures[1].startswith("wrong result 0") and failures[2] == "crash: SIGSEGV"
    best = run.settle()
    assert best.trace.decisions == {0: 0} and best.seconds == run.best_seconds and not best.predicted


def test_a_worker_that_dies_loses_its_trial_only(workers: Workers) -> None:
    measurer = RemoteMeasurer(workers.client, TASK, PATIENT)
    (first,) = measurer.build([candidate(0)])
    assert isinstance(first, Ready)
    (pid,) = workers.client.run(os.getpid).values()
    with ThreadPoolExecutor(1) as threads:
        hanging = threads.submit(measurer.build, [candidate(1 + [*DEFECTS].index("hang"))])
        while not any(workers.client.processing().values()):
            time.sleep(0.05)
        os.kill(pid, signal.SIGKILL)
        (lost,) = hanging.result()
    assert isinstance(lost, Trial) and lost.failure == "worker: KilledWorker"
    (second,) = measurer.build([candidate(0)])
    assert isinstance(second, Ready) and measurer.time([second])[0] > 0  # type: ignore[index]


def test_times_are_multiples_of_the_smallest_of_the_reference() -> None:
    """Planted replies: seconds of the reference and of a candidate on two machines, one twice as fast."""
    replies = iter([(2e-6, 2e-6), (1e-6, 3e-6), (2e-6, 1e-6)])

    class Client:
        def submit(self, function: object, *args: object, pure: bool) -> Client:
            return self

        def result(self, timeout: float) -> tuple[float, float]:
            return next(replies)

    measurer = RemoteMeasurer(Client(), TASK, PATIENT)
    ready = [made for made in measurer.build([candidate(0), candidate(1), candidate(2)]) if isinstance(made, Ready)]
    assert measurer.time(ready) == [1e-6, 3e-6, 0.5e-6]


def test_targets_that_the_workers_cannot_run_are_refused(workers: Workers, tmp_path: Path) -> None:
    task = Task("f", scaled(), Target("cuda:sm_90a"))
    with pytest.raises(UnsupportedError, match="their machine cannot run code for cuda -arch=sm_90a"):
        workers.measurer(task, Processes(1), tmp_path, PATIENT)


def test_errors_of_the_unscheduled_function_arrive(workers: Workers, tmp_path: Path) -> None:
    other = Task("f", scaled(), Target("cpu:sapphirerapids"))
    measurer = workers.measurer(other, Processes(1), tmp_path, PATIENT)
    with pytest.raises(MLCError, match="tuning f: the function without a schedule failed: .* this one lacks"):
        measurer.build([candidate(0)])


def test_a_cluster_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "SECONDS_TO_CONNECT", 0.5)
    with pytest.raises(ResourceError, match="no scheduler answers at tcp://127.0.0.1:9"):
        Workers("tcp://127.0.0.1:9")
    without = LocalCluster(n_workers=0, processes=False, dashboard_address=None)
    with without as cluster, pytest.raises(ResourceError, match="has no workers"):
        Workers(cluster.scheduler_address)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ResourceError, match="needs the package distributed") as error:
        Workers("tcp://127.0.0.1:9")
    assert error.value.hint == "pip install 'mlc-cli[workers]'"
