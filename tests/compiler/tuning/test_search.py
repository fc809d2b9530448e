"""Searches: the candidates tried, rejected candidates, and the records that survive when the process is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mlc_compiler.backends import register_backend, unregister_backend
from mlc_compiler.target import Target
from mlc_compiler.tuning.database import RECORDS, Database
from mlc_compiler.tuning.measure import Limits, Ready, Trial
from mlc_compiler.tuning.processes import Processes
from mlc_compiler.tuning.search import Search
from mlc_compiler.tuning.space import ScheduleFn
from mlc_compiler.tuning.strategies import RandomSearch
from mlc_compiler.tuning.task import Task
from mlc_errors import MLCError, UnsupportedError
from tests.compiler.backends.toy import ToyBackend
from tests.compiler.tuning.spaces import CPU, DEFECTS, scaled, tiled, with_defects

PATIENT = Limits(build=600.0, run=600.0, turns=2)  # which no candidate of a busy machine exceeds
HANGS = 1 + [*DEFECTS].index("hang")


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes(1) as started:
        yield started


def search(processes: Processes, folder: Path, database: Database, function=tiled, func=None, **options) -> Search:
    task = Task("f", func or scaled(), CPU)
    return Search(task, ScheduleFn(function), database, processes, folder, RandomSearch(), PATIENT, **options)


def with_a_limit_of_what_hangs(run: Search) -> Search:
    """A limit only for the candidate that never ends, so that a busy machine ends no other."""
    check = run.measurer.check

    def limited(ready: Ready) -> Trial | None:
        run.measurer.limits = replace(PATIENT, run=1.0) if ready.candidate.decisions == (HANGS,) else PATIENT
        return check(ready)

    run.measurer.check = limited  # type: ignore[method-assign]
    return run


def test_defective_candidates_are_recorded_and_never_chosen(processes: Processes, tmp_path: Path, monkeypatch):
    database = Database(tmp_path / "db")
    run = with_a_limit_of_what_hangs(search(processes, tmp_path, database, with_defects))
    run.run(10)
    assert run.exhausted is False and len(run.history.trials) == 4
    failures = {t.candidate.decisions[0]: t.failure for t in run.history.trials}
    assert failures[0] == ""
    found = dict(zip(DEFECTS, (failures[i] for i in (1, 2, 3)), strict=True))
    assert found["wrong"].startswith("wrong result 0: its error is")
    assert found["crash"] == "crash: SIGSEGV" and found["hang"] == "time limit"
    best = run.settle()
    assert best is not None and best.trace.decisions == {0: 0}
    assert [r.seconds is None for r in Database(tmp_path / "db").records(scaled(), CPU)].count(True) == 3
    run.run(10)
    assert run.exhausted
    later, built = search(processes, tmp_path, database, with_defects), []
    monkeypatch.setattr(later.measurer, "build", lambda candidates: built.extend(candidates) or [])
    later.run(10)
    assert [c.decisions[0] for c in built] == [0, HANGS]  # the best, and what a limit ended


def test_trials_of_the_database_are_not_made_again(processes: Processes, tmp_path: Path, monkeypatch):
    database = Database(tmp_path / "db")
    search(processes, tmp_path, database).run(3)
    again = search(processes, tmp_path, database)
    assert len(again.history.trials) == 3 and again.default_seconds is not None
    built, known, (_, before) = [], set(again.history.by_key), again.history.timed[0]
    make = again.measurer.build
    monkeypatch.setattr(again.measurer, "build", lambda candidates: built.extend(candidates) or make(candidates))
    again.run(2)
    fastest, *others = built
    assert fastest.key == before.key and len({c.key for c in others} - known) == 2
    assert again.made == 2 and len(database) == 5


def test_a_busy_machine_makes_no_candidate_faster(processes: Processes, tmp_path: Path, monkeypatch):
    """Planted times: alone; a faster one in two measurements of a busy machine; a slower one in a busier machine."""
    run = search(processes, tmp_path, Database())
    measured = iter([[1e-6], [3e-6, 2e-6], [3e-6, 2.5e-6], [8e-6, 16e-6]])
    monkeypatch.setattr(run.measurer, "check", lambda ready: None)
    monkeypatch.setattr(run.measurer, "time", lambda libraries, turns=None: next(measured))
    run.run(3)
    assert [trial.seconds for trial in run.history.trials] == [1e-6, 1e-6, pytest.approx(2e-6)]


def test_the_chosen_candidate_was_measured_beside_the_default(processes: Processes, tmp_path: Path, monkeypatch):
    """Planted times: the three that seemed the fastest are slower beside the default than the fourth seemed to be."""
    run = search(processes, tmp_path, Database())
    measured = iter([[1e-6], [2e-6, 4e-6, 5e-6, 6e-6], [2e-6, 4e-6, 5e-6, 6e-6]])
    monkeypatch.setattr(run.measurer, "check", lambda ready: None)
    monkeypatch.setattr(run.measurer, "time", lambda libraries, turns=None: next(measured)[: len(libraries)])
    run.run(1)
    for candidate, seconds in zip(RandomSearch().propose(run.history, 4), (6e-7, 7e-7, 8e-7, 9e-7), strict=True):
        run.history.add(Trial(candidate, seconds))
    run.settle()
    assert [t.seconds for t in run.history.trials] == [6e-6, 4e-6, 5e-6, 5e-6, 2e-6]


SCRIPT = """
from mlc_compiler.tuning.database import Database
from mlc_compiler.tuning.program import tune_tasks
from mlc_compiler.tuning.search import Budget
from mlc_compiler.tuning.space import ScheduleFn
from mlc_compiler.tuning.task import Task
from tests.compiler.tuning.spaces import CPU, scaled, tiled
tune_tasks([Task("f", scaled(), CPU)], Database({folder!r}), Budget(trials=12, step=3), space=ScheduleFn(tiled))
"""


def test_a_killed_search_keeps_its_trials(tmp_path: Path):
    folder = tmp_path / "db"
    started = subprocess.Popen([sys.executable, "-c", SCRIPT.format(folder=str(folder))])
    records = folder / RECORDS
    while started.poll() is None and not (records.exists() and records.read_bytes().count(b"\n") >= 2):
        time.sleep(0.05)
    os.kill(started.pid, signal.SIGKILL)
    started.wait()
    assert len(Database(folder)) >= 2


def test_a_target_without_times_is_refused(processes: Processes, tmp_path: Path):
    register_backend(ToyBackend())
    try:
        with pytest.raises(UnsupportedError, match="candidates for toy can be neither timed nor predicted"):
            Search(Task("f", scaled(), Target("toy")), ScheduleFn(tiled), Database(), processes, tmp_path)
    finally:
        unregister_backend("toy")


def test_a_space_without_a_right_candidate_is_an_error(processes: Processes, tmp_path: Path):
    def always_wrong(s):
        s.func = DEFECTS["wrong"](s.func)

    run = search(processes, tmp_path, Database(), always_wrong)
    run.run(1)
    with pytest.raises(MLCError, match="no candidate of 1 gave a right result"):
        run.settle()
