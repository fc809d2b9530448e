"""Run single operators with their GPU kernels on the simulated driver."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from mlc_compiler import build
from mlc_compiler.sim.counts import Counts
from mlc_compiler.sim.driver import SimulatedDriver
from tests.compiler.relax.check_op import graph_of

TARGET = "cuda:sm_80"


def simulate(name: str, *args: Any, symbolic: Collection[int] = (), target: str = TARGET, **attrs: Any) -> Any:
    """The result of one operator, with the arguments of ``graph_of``. Raises if a kernel has a race or a fault."""
    return observed(name, *args, symbolic=symbolic, target=target, **attrs)[0]


def observed(
    name: str, *args: Any, symbolic: Collection[int] = (), target: str = TARGET, **attrs: Any
) -> tuple[Any, dict[str, Counts]]:
    """As ``simulate``; also returns what the simulator counted for each kernel."""
    library = build(graph_of(name, args, attrs, symbolic), target)
    with SimulatedDriver(target.removeprefix("cuda:")) as driver:
        driver.install(library)
        result = library["main"](*_arrays(args))
        library.context.close()
    return result, driver.counts


def _arrays(args: Sequence[Any]) -> list[np.ndarray]:
    found: list[np.ndarray] = []
    for arg in args:
        if isinstance(arg, list | tuple):
            found += _arrays(arg)
        elif isinstance(arg, np.ndarray):
            found.append(arg)
    return found
