"""Databases of tuned schedules: files, lookups, and the rule that applies records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlc_compiler.backends.cpu.schedules import CPU_RULES
from mlc_compiler.ir.module import IRModule
from mlc_compiler.ir.structural import structural_equal
from mlc_compiler.passes.apply_schedules import ApplySchedules
from mlc_compiler.target import Target
from mlc_compiler.tir import te
from mlc_compiler.tir.nodes import PrimFunc
from mlc_compiler.tir.schedule import Schedule
from mlc_compiler.tuning.database import RECORDS, WORKLOADS, Database
from mlc_compiler.tuning.record import Record, portable, workload_hash
from mlc_compiler.tuning.tuned import Tuned
from mlc_errors import MLCError, ResourceError
from tests.compiler.tuning.spaces import CPU, product, scaled

ZEN4 = Target("cpu:znver4")


def record(factor: int, seconds: float | None, target: Target = CPU) -> Record:
    """The record of ``scaled`` with its columns split by a factor."""
    s = Schedule(scaled())
    s.split(s.get_loops("b")[1], [None, factor])
    failure = "" if seconds else "crash: SIGSEGV"
    return Record(portable(s.trace), seconds, target.export(), (("float32", (8, 48)),), failure)


def test_lines_are_those_of_metaschedule(tmp_path: Path):
    Database(tmp_path).add(scaled(), record(4, 1.5e-6))
    ((key, text),) = map(json.loads, (tmp_path / WORKLOADS).read_text().splitlines())
    assert key == workload_hash(scaled()) and "T.Buffer" in text
    ((number, fields),) = map(json.loads, (tmp_path / RECORDS).read_text().splitlines())
    trace, seconds, target, arguments, about = fields
    assert (number, seconds, target["kind"]) == (0, [1.5e-6], "cpu")
    assert arguments == [["TENSOR", "float32", [8, 48]]]
    assert [step["step"] for step in trace] == ["get_loops", "split"]
    assert about["failure"] == "" and about["compiler"]


def test_the_fastest_schedule_of_a_workload_and_target_is_found(tmp_path: Path):
    database = Database(tmp_path)
    for each in (record(4, 3e-6), record(8, 2e-6), record(16, None), record(24, 1e-6, ZEN4)):
        database.add(scaled(), each)
    database.close()
    found = Database(tmp_path)
    assert len(found) == 4 and len(found.records(scaled(), CPU)) == 3
    assert found.best(scaled(), CPU) == record(8, 2e-6)
    assert found.best(scaled(), ZEN4) == record(24, 1e-6, ZEN4)
    assert found.best(scaled(8, 49), CPU) is None


def test_a_later_time_of_a_schedule_replaces_the_earlier(tmp_path: Path):
    database = Database(tmp_path)
    for each in (record(4, 1e-6), record(8, 2e-6), record(4, 3e-6)):
        database.add(scaled(), each)
    best = Database(tmp_path).best(scaled(), CPU)
    assert best is not None and best.seconds == 2e-6


def test_names_do_not_belong_to_a_workload():
    a = te.placeholder((8, 48), "float32", "other")
    renamed = te.create_prim_func([a, te.compute((8, 48), lambda i, j: a[i, j] * 3.0, name="b")])
    assert workload_hash(renamed.with_attr("global_symbol", "f")) == workload_hash(scaled())
    assert workload_hash(scaled().with_attr("activations", (0,))) != workload_hash(scaled())


def test_an_incomplete_line_is_dropped(tmp_path: Path):
    Database(tmp_path).add(scaled(), record(4, 1e-6))
    with open(tmp_path / RECORDS, "a") as file:
        file.write('[0, [[{"step"')
    database = Database(tmp_path)
    assert len(database) == 1
    database.add(scaled(), record(8, 2e-6))
    assert len(Database(tmp_path)) == 2


@pytest.mark.parametrize("line", ["nonsense", "[7, []]", "[0, [1, 2]]", '[0, [[{"step": 1}], [1], {}, [], {}]]'])
def test_other_lines_are_refused_with_their_place(tmp_path: Path, line: str):
    Database(tmp_path).add(scaled(), record(4, 1e-6))
    with open(tmp_path / RECORDS, "a") as file:
        file.write(line + "\n")
    with pytest.raises(MLCError, match=f"{RECORDS}:2"):
        Database(tmp_path)


def test_databases_are_merged(tmp_path: Path):
    one, two = Database(tmp_path / "one"), Database(tmp_path / "two")
    one.add(scaled(), record(4, 2e-6))
    two.add(product(), record(8, 5e-6))
    two.add(scaled(), record(4, 1e-6))
    two.add(scaled(), record(8, 1e-6))
    assert one.merge(two) == 2
    merged = Database(tmp_path / "one")
    assert (len(merged), len(merged.records(product(), CPU))) == (3, 1)
    assert merged.best(scaled(), CPU) == record(8, 1e-6)


def test_one_process_writes_at_a_time(tmp_path: Path):
    first = Database(tmp_path)
    first.add(scaled(), record(4, 1e-6))
    with pytest.raises(ResourceError, match="in use by another process"):
        Database(tmp_path).add(scaled(), record(8, 1e-6))
    first.close()
    Database(tmp_path).add(scaled(), record(8, 1e-6))


def test_a_file_is_no_database(tmp_path: Path):
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(MLCError, match="expected a folder"):
        Database(path)


def applied(database: Database, func: PrimFunc) -> PrimFunc:
    return ApplySchedules((Tuned(database), *CPU_RULES), CPU).run(IRModule({"f": func}))["f"]


def test_schedules_of_the_database_come_before_the_rules():
    database = Database()
    database.add(scaled(), record(4, 1e-6))
    result = applied(database, scaled().with_attr("global_symbol", "f"))
    expected = record(4, 1e-6).schedule(scaled()).func
    assert result.attrs["schedule"] == "Tuned" and structural_equal(result.body, expected.body)
    assert applied(database, product()).attrs["schedule"] == "Matmul"


def test_a_trace_that_does_not_fit_is_left_to_the_rules():
    database = Database()
    database.add(product(), record(4, 1e-6))
    assert applied(database, product()).attrs["schedule"] == "Matmul"
