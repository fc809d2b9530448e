"""The fixture ``executor``: each test runs on a simulated GPU, and, with the marker ``gpu``, on this machine's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mlc_compiler.sim.driver import SimulatedDriver
from tests.e2e.conftest import checkpoint, shared, smollm2_folder, tiny_folder  # noqa: F401  (fixtures)
from tests.gpu.executors import SIMULATED, Executor, missing_device

SIMULATED_OR_DEVICE = ("simulated", pytest.param("device", marks=pytest.mark.gpu))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that need a GPU on machines without one."""
    on_device = [item for item in items if item.get_closest_marker("gpu")]
    if not on_device or missing_device() is None:
        return
    config.hook.pytest_deselected(items=on_device)
    items[:] = [item for item in items if item not in on_device]


@pytest.fixture(params=SIMULATED_OR_DEVICE, scope="module")
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    """An executor on a simulated GPU, or on this machine's."""
    if request.param == "device":
        yield Executor("cuda")
        return
    with SimulatedDriver(SIMULATED) as driver:
        yield Executor(f"cuda:{SIMULATED}", driver)


@pytest.fixture(autouse=True)
def no_fault(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test if a simulated kernel had a fault."""
    yield
    if "executor" in request.fixturenames:
        driver = request.getfixturevalue("executor").driver
        assert driver is None or driver.fault is None, driver.fault


@pytest.fixture
def device() -> Executor:
    """The GPU of this machine; tests that take it have the marker ``gpu``."""
    return Executor("cuda")
