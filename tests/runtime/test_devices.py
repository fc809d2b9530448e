"""Parsing of device names."""

from __future__ import annotations

import pytest

from mlc_errors import UsageError
from mlc_runtime.devices import device_number


@pytest.mark.parametrize(
    ("device", "kind", "number"),
    [("cuda", "cuda", 0), ("cuda:0", "cuda", 0), ("cuda:17", "cuda", 17), ("cpu", "cpu", 0)],
)
def test_numbers(device: str, kind: str, number: int):
    assert device_number(device, kind) == number


@pytest.mark.parametrize(
    ("device", "kind", "said"),
    [
        ("cuda:1", "cpu", "device is 'cuda:1'; the library is compiled for cpu"),
        ("cpu", "cuda", "device is 'cpu'; the library is compiled for cuda"),
        ("cuda:", "cuda", "expected cuda, or cuda:NUMBER with a number from 0 to 255"),
        ("cuda:-1", "cuda", "expected cuda, or cuda:NUMBER"),
        ("cuda:256", "cuda", "expected cuda, or cuda:NUMBER"),
        ("cuda:sm_80", "cuda", "expected cuda, or cuda:NUMBER"),
        ("cpu:1", "cpu", "expected cpu, or cpu:0"),
        ("", "cuda", "device is ''"),
    ],
)
def test_devices_that_a_library_does_not_run_on(device: str, kind: str, said: str):
    with pytest.raises(UsageError, match=said):
        device_number(device, kind)
