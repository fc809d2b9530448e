"""``tvm.meta_schedule``, the later spelling of the search: its database, and unsupported arguments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mlc_compiler.compat as tvm
from mlc_compiler import build
from mlc_compiler.compat import meta_schedule as ms
from mlc_compiler.compat import relax
from mlc_compiler.target import Target
from mlc_errors import MLCError, UnsupportedError
from tests.compiler.tuning.spaces import scaled, tiled

ONE_CORE = "llvm --num-cores=1"
MODULE = tvm.IRModule({"main": scaled().with_attr("global_symbol", "main")})
X = np.random.default_rng(0).normal(0, 1, (8, 48)).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tune")
    space = ms.space_generator.ScheduleFn(tiled)
    options = {"max_trials_global": 2, "num_trials_per_iter": 2, "space": space, "strategy": "replay-trace"}
    database = ms.tir_integration.tune_tir(mod=MODULE, target=ONE_CORE, work_dir=folder, **options)
    assert isinstance(database, ms.Database) and len(database) == 2
    return folder


def test_a_database_gives_schedules(folder: Path, capsys: pytest.CaptureFixture[str]):
    database = ms.database.JSONDatabase(folder)
    sch = database.query_schedule(MODULE, Target(ONE_CORE))
    again = ms.tir_integration.compile_tir(database, MODULE, ONE_CORE)
    assert sch is not None and again is not None and again.mod.script() == sch.mod.script()
    sch.trace.show()
    assert "sch.sample_perfect_tile(l1, n=2, decision=[" in capsys.readouterr().out
    out = np.zeros_like(X)
    build(database.query_ir_module(MODULE, ONE_CORE), ONE_CORE)["main"](X, out)
    np.testing.assert_allclose(out, 3 * X)
    record = database.query_tuning_record(MODULE, ONE_CORE)
    assert record is not None and record.seconds > 0
    assert database.query_schedule(MODULE, "llvm --num-cores=3") is None


def test_a_pass_applies_the_database(folder: Path):
    with Target(ONE_CORE):
        mod = relax.transform.MetaScheduleApplyDatabase(str(folder))(MODULE)
    assert mod["main"].attrs["schedule"] == "Tuned"


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"strategy": "annealing"}, UnsupportedError, "no strategy 'annealing'; there are evolutionary"),
        ({"space": "mine"}, UnsupportedError, "no space 'mine'; expected a ScheduleFn"),
        ({"max_trials_global": None}, MLCError, "neither config nor max_trials_global"),
        ({"task_name": "f", "mod": tvm.IRModule({"g": scaled(), "h": scaled()})}, MLCError, "no tensor function 'f'"),
    ],
)
def test_refusals(options: dict, kind: type[MLCError], message: str, tmp_path: Path):
    given = {"mod": MODULE, "target": ONE_CORE, "work_dir": tmp_path, "max_trials_global": 1, **options}
    with pytest.raises(kind, match=message):
        ms.tune_tir(**given)
