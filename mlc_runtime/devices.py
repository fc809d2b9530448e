"""Names of the device on which a library runs: ``cpu``, ``cuda``, ``cuda:1``."""

from __future__ import annotations

from mlc_errors import UsageError

MAX_DEVICES = 256


def device_number(device: str, kind: str) -> int:
    """The device number in a name such as ``cuda:1``, default 0. kind: of the library's target.

    Raises UsageError for a device of another kind.
    """
    name, colon, number = device.partition(":")
    if name != kind:
        hint = "leave the device out, or compile the model for that device"
        raise UsageError(f"device is {device!r}; the library is compiled for {kind}", hint=hint)
    last = 0 if kind == "cpu" else MAX_DEVICES - 1
    if colon and not (number.isdecimal() and int(number) <= last):
        expected = f"{kind}:NUMBER with a number from 0 to {last}" if last else f"{kind}:0"
        raise UsageError(f"device is {device!r}; expected {kind}, or {expected}")
    return int(number or 0)
