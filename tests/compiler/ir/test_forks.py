"""Work in forked processes gives the same results and errors as in one process."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from mlc_compiler.ir import forks
from mlc_compiler.ir.forks import BackgroundChecks, at_once, dumped
from mlc_compiler.ir.structural import first_difference
from mlc_compiler.script import parse

HERE = os.getpid()
FUNCTION = """
@T.prim_func
def scale(var_a: T.handle, var_b: T.handle):
    n = T.int64()
    a = T.match_buffer(var_a, (n, 4), "float32")
    b = T.match_buffer(var_b, (n, 4), "float32")
    for i, j in T.grid(n, 4):
        with T.block("scale"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            b[v_i, v_j] = T.if_then_else(v_i < n - 1, a[v_i, v_j] * T.float32(2.0), T.float32(0.0))
"""


@pytest.mark.parametrize("processes", [1, 2, 3, 9])
def test_results_are_in_order(processes: int):
    assert at_once(lambda x: x * x, range(50), processes) == [x * x for x in range(50)]


def test_several_processes_work():
    def work(_: int) -> int:
        sum(range(100_000))
        return os.getpid()

    assert len({HERE, *at_once(work, range(200), 3)}) == 3


def test_a_function_is_sent_whole():
    func = parse(FUNCTION)
    copy = pickle.loads(dumped(func))
    assert copy is not func and first_difference(copy, func) is None
    assert copy.params[0].shape[0] is copy.params[1].shape[0]  # one variable stays one


def test_an_error_is_raised_here():
    def work(x: int) -> int:
        if x == 7:
            raise ValueError(f"item {x} in {os.getpid()}")
        return x

    with pytest.raises(ValueError, match=f"item 7 in {HERE}"):
        at_once(work, range(20), 2)


def test_what_a_process_cannot_do_or_send_is_done_here():
    def dies(x: int) -> int:
        if os.getpid() != HERE:
            os._exit(9)
        return x + 1

    assert at_once(dies, range(20), 3) == list(range(1, 21))
    assert [made() for made in at_once(lambda x: lambda: x, range(20), 3)] == list(range(20))


def fails() -> None:
    raise ValueError(f"the check fails in {os.getpid()}")


@pytest.mark.parametrize("processes", [1, 2])
def test_a_check_that_fails_in_the_background_fails_here(processes: int):
    with pytest.raises(ValueError, match=f"the check fails in {HERE}"), BackgroundChecks(processes) as checks:
        checks.start(lambda: None)
        checks.start(fails)


def test_a_failed_check_comes_before_the_error_that_it_explains():
    with pytest.raises(ValueError, match=f"the check fails in {HERE}"), BackgroundChecks(2) as checks:
        checks.start(fails)
        raise KeyError("a consequence")
    with pytest.raises(KeyError, match="no consequence"), BackgroundChecks(2) as checks:
        checks.start(lambda: None)
        raise KeyError("no consequence")


def test_a_check_runs_beside_this_process(tmp_path: Path):
    with BackgroundChecks(2) as checks:
        checks.start(lambda: (tmp_path / "process").write_text(str(os.getpid())))
    assert int((tmp_path / "process").read_text()) != HERE


def test_the_result_of_a_check_is_not_sent(tmp_path: Path):
    def check() -> object:
        with (tmp_path / "processes").open("a") as file:
            print(os.getpid(), file=file)
        return lambda: "cannot be pickled"

    with BackgroundChecks(2) as checks:
        checks.start(check)
    (process,) = (tmp_path / "processes").read_text().split()
    assert int(process) != HERE


ENDS = """
import os, time
from mlc_compiler.ir.forks import at_once
main = os.getpid()
at_once(lambda _: os._exit(3) if os.getpid() == main else (time.sleep(0.2), bytes(1 << 20)), range(9), 2)
"""


def test_a_process_ends_when_its_parent_has_ended():
    """Otherwise the result fills the pipe, and standard error stays open."""
    ended = subprocess.run([sys.executable, "-c", ENDS], stderr=subprocess.PIPE, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (3, b"")


def test_without_fork_there_is_one_process(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(forks.os, "fork")
    assert set(at_once(lambda _: os.getpid(), range(5), 4)) == {HERE}
