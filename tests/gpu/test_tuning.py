"""The search over schedules on a GPU: a candidate is compiled, its result compared, and its calls timed."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from mlc_compiler import Library
from mlc_compiler.target import Target
from mlc_compiler.tuning import worker
from mlc_compiler.tuning.gpu_space import GpuSketches
from mlc_compiler.tuning.task import Task
from mlc_compiler.tuning.worker import Arguments, Build, Run, Turns
from tests.compiler.tuning.spaces import product
from tests.gpu.executors import Executor


def test_candidates_run_and_are_timed(executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "Library", lambda path: executor.install(Library(path)))
    task = Task("f", product(), Target(executor.target))
    candidate = GpuSketches().candidate(task, 0, [[4, 2, 2], [4, 4, 2], [3, 8], 1, 0, 1, 0, 0])
    assert candidate is not None
    library, file = tmp_path / "candidate.so", tmp_path / "arguments"
    file.write_bytes(pickle.dumps(task.arguments()))
    Build(candidate.func, task.target.export(), library).run()
    arguments = Arguments(file, task.written)
    (found,) = Run(library, arguments).run()
    a, b, _ = arguments.load()
    np.testing.assert_allclose(found, a @ b, rtol=1e-5, atol=1e-5)
    monkeypatch.setattr(worker, "SECONDS_OF_A_TURN", 1e-6)
    assert all(seconds > 0 for seconds in Turns(((library, arguments),) * 2, 1).run())
