"""``relax.VirtualMachine``: calls functions of a library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mlc_errors import UnsupportedError
from mlc_runtime.library import Library
from mlc_runtime.timing import Timing

from .kv_state import created, expanded, grown, restored
from .nd import as_results
from .runtime import Device, ShapeTuple


@dataclass(frozen=True)
class Executable:
    """A compiled module: the library, and its functions that create caches, with the kind of cache."""

    library: Library
    creating: Mapping[str, str] = field(default_factory=dict)


class VirtualMachine:
    """The functions of a library by name. They return ``NDArray``, and caches (``kv_state``) that they create or take.

    device: must be the device for which the library was compiled; raises UnsupportedError otherwise.
    """

    def __init__(self, library: Library | Executable, device: Device | None = None):
        self._creating = library.creating if isinstance(library, Executable) else {}
        self.library = library.library if isinstance(library, Executable) else library
        if device is not None:
            self._check(device)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        function = self.library[name]

        def call(*args: Any) -> Any:
            result = restored(function(*map(_argument, expanded(args))), args)
            while grown(args):  # a cache was too short: nothing of the call is kept but what the next one stores again
                result = restored(function(*map(_argument, expanded(args))), args)
            return created(self._creating[name], result) if name in self._creating else as_results(result)

        return call

    def time_evaluator(
        self, name: str, dev: Device | None = None, number: int = 10, repeat: int = 1
    ) -> Callable[..., Timing]:
        """Measure calls of a function; see ``Library.time_evaluator``."""
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
