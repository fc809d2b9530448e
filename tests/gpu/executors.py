"""Executors for the tests of this folder: run compiled functions on this machine's GPU, or on a simulated one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from hypothesis import Phase, given, settings
from hypothesis.strategies import SearchStrategy

from mlc_compiler import Library, build
from mlc_compiler.api import Buildable
from mlc_compiler.sim.driver import SimulatedDriver
from mlc_compiler.target import Target
from mlc_errors import UnsupportedError

Value = TypeVar("Value")
SIMULATED = "sm_80"


def missing_device() -> str | None:
    """Why no test can run on a GPU of this machine, or None."""
    try:
        Target("cuda")
    except UnsupportedError as error:
        return error.message
    return None


@dataclass(frozen=True)
class Executor:
    """A GPU. target: the target to compile for. driver: the simulated driver, if any."""

    target: str
    driver: SimulatedDriver | None = None

    def choose(self, simulated: Value, on_device: Value) -> Value:
        """Choose a size: smaller if kernels are simulated, which is slow."""
        return on_device if self.driver is None else simulated

    def install(self, library: Library) -> Library:
        """Prepare a library for its first call."""
        if self.driver is not None:
            self.driver.install(library)
        return library

    @contextmanager
    def built(self, mod: Buildable) -> Iterator[Library]:
        """The library of a module or function."""
        library = self.install(build(mod, self.target))
        try:
            yield library
        finally:
            library.context.close()

    def opened(self, path: Path) -> Library:
        """The library of a file."""
        return self.install(Library(path))

    def for_random(self, values: SearchStrategy[Value], check: Callable[[Value], None], examples: int = 60) -> None:
        """Run a check on random values, on fewer if kernels are simulated."""
        count = self.choose(max(examples // 20, 1), examples)
        settings(max_examples=count, phases=(Phase.generate,))(given(values)(lambda value: check(value)))()
