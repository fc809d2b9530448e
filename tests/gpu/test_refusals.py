"""Unsupported uses of a GPU are rejected with the reason: another architecture, too little memory, host tensors."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from mlc_compiler import build, parse
from mlc_compiler.backends.cuda.machine import ARCHITECTURES
from mlc_compiler.target import Target
from mlc_errors import ResourceError
from mlc_runtime.arrays import to_tensor
from mlc_runtime.library import Context
from tests.gpu.executors import Executor

ADD = """
@R.function
def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")):
    with R.dataflow():
        z = R.add(x, y)
        R.output(z)
    return z
"""


def test_code_for_another_architecture(executor: Executor) -> None:
    own = Target(executor.target).cpu
    other = next(name for name in ("sm_90a", "sm_100a") if name != own and name in ARCHITECTURES)
    library = executor.install(build(parse(ADD), f"cuda:{other}"))
    with pytest.raises(RuntimeError, match=rf"compiled for {other}.*the GPU is {re.match(r'sm_[0-9]+', own)[0]}"):  # type: ignore[index]
        Context(library)


def test_code_for_an_older_architecture_runs(executor: Executor, tmp_path: Path) -> None:
    """From its PTX, which the driver compiles."""
    library = executor.install(build(parse(ADD), "cuda:sm_80"))
    x = np.arange(1000, dtype=np.float32)
    np.testing.assert_array_equal(library["main"](x, 2 * x), 3 * x)
    library.context.close()


def test_a_result_without_room(executor: Executor) -> None:
    with executor.built(parse(ADD)) as library:
        memory = library.context.memory
        free = memory.available_bytes
        with pytest.raises(ResourceError, match="the GPU has no room for an array of .* MB: .*out of memory"):
            memory.empty((2 * free,), np.dtype(np.float32))
        x = np.ones(10, np.float32)
        np.testing.assert_array_equal(library["main"](x, x), 2 * x)


def test_a_tensor_of_the_host(executor: Executor) -> None:
    """The library itself refuses it; ``Library`` copies it to the GPU."""
    x = np.ones(10, np.float32)
    with executor.built(parse(ADD)) as library:
        there = library.context.memory.loaded(x)
        with pytest.raises(
            ValueError, match="argument x lies on device type 1; expected a tensor on a CUDA device: copy"
        ):
            library.raw("main")(library.context.handle, to_tensor(x), there.tensor, there.tensor)


def test_a_device_that_does_not_exist(executor: Executor) -> None:
    library = executor.install(build(parse(ADD), executor.target))
    library.device = 200
    with pytest.raises(RuntimeError, match=r"there is no device 200; this machine has \d+ CUDA devices"):
        Context(library)
