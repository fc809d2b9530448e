"""``relax.VirtualMachine``: calls functions of a library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlc_errors import UnsupportedError
from mlc_runtime.library import Library
from mlc_runtime.timing import Timing

from .nd import as_results
from .runtime import Device, ShapeTuple


class VirtualMachine:
    """The functions of a library by name, which return ``NDArray``. device: the one that the library is made for.

    Raises UnsupportedError for another device.
    """

    def __init__(self, library: Library, device: Device | None = None):
        self.library = library
        if device is not None:
            self._check(device)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        function = self.library[name]
        return lambda *args: as_results(function(*map(_argument, args)))

    def time_evaluator(
        self, name: str, dev: Device | None = None, number: int = 10, repeat: int = 1
    ) -> Callable[..., Timing]:
        """Times calls of a function; see ``Library.time_evaluator``."""
        if dev is not None:
            self._check(dev)
        return self.library.time_evaluator(name, number, repeat)

    def _check(self, device: Device) -> None:
        made_for = Device("cuda", self.library.device) if self.library.is_for_gpu else Device("cpu")
        if device != made_for:
            got = f"{device.type}:{device.index}"
            raise UnsupportedError(f"device: got {got}; the library runs on {made_for.type}:{made_for.index}")


def _argument(value: Any) -> Any:
    return value[0] if isinstance(value, ShapeTuple) and len(value) == 1 else value
