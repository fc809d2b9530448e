"""Parse the options ``--device`` and ``--host`` to a target."""

from __future__ import annotations

from mlc_compiler.target import Target, with_host
from mlc_errors import UnsupportedError

AUTO = "auto"


def find_target(device: str, host: str = AUTO) -> tuple[Target, str]:
    """The target of a device, with the triple of the CPU that runs graph functions, and a note on the choice.

    device ``auto``: this machine's GPU, else its CPU; with a host, that CPU. host ``auto``: the device's. Raises
    MLCError for an unknown target.
    """
    if host != AUTO:
        return with_host("cpu" if device == AUTO else device, host), ""
    if device != AUTO:
        return Target(device), ""
    try:
        target = Target("cuda")
    except UnsupportedError as error:
        return Target("cpu"), f"{error.message.removeprefix('target cuda: ')}; using the CPU"
    return target, f"found a GPU of architecture {target.cpu}"
