"""The measured GPU, and its data sheet's limits, computed from device attributes."""

from __future__ import annotations

from dataclasses import dataclass

from mlc_compiler.backends.cuda.machine import ARCHITECTURES, capability
from mlc_errors import UnsupportedError


@dataclass(frozen=True)
class Device:
    """A GPU's attributes from the driver.

    capability: compute capability times 10. clocks: the maximum ones. driver: its CUDA version, 13000 for 13.0.
    """

    name: str
    capability: int
    multiprocessors: int
    clock_hz: float
    memory_clock_hz: float
    memory_bus_bits: int
    l2_bytes: int
    driver: int

    @property
    def read_bytes_per_s(self) -> float:
        """The memory's pin bandwidth, two transfers per clock."""
        return 2 * self.memory_clock_hz * self.memory_bus_bits / 8

    @property
    def mma_flop_per_s(self) -> float | None:
        """float16 operations of all tensor cores at the maximum clock; None for an unknown architecture.

        Data sheets assume a lower clock, 1.83 GHz for the 989 TFLOP/s of an H100 SXM.
        """
        per_clock = next((row.mma_flop for n, row in ARCHITECTURES.items() if capability(n) == self.capability), None)
        return None if per_clock is None else per_clock * self.multiprocessors * self.clock_hz

    @property
    def slug(self) -> str:
        """The GPU's name for use in file names."""
        return "-".join(self.name.lower().split())


def read_device(ordinal: int = 0) -> Device:
    """Attributes of a GPU. Raises UnsupportedError with the reason if there is none."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise UnsupportedError(f"no CUDA device: {error}", hint="install the extra cuda") from None

    def call(name: str, *args: object) -> object:
        try:
            status, *values = getattr(driver, name)(*args)
        except RuntimeError as error:  # no driver
            raise UnsupportedError(f"no CUDA device: {str(error).splitlines()[0]}") from None
        if status != driver.CUresult.CUDA_SUCCESS:
            raise UnsupportedError(f"no CUDA device: {name} says {status.name}")
        return values[0] if values else None

    call("cuInit", 0)
    device = call("cuDeviceGet", ordinal)

    def attribute(name: str) -> int:
        kind = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(str(call("cuDeviceGetAttribute", kind, device)))

    name = call("cuDeviceGetName", 256, device)
    assert isinstance(name, bytes)
    return Device(
        name=name.split(b"\0")[0].decode(),
        capability=10 * attribute("COMPUTE_CAPABILITY_MAJOR") + attribute("COMPUTE_CAPABILITY_MINOR"),
        multiprocessors=attribute("MULTIPROCESSOR_COUNT"),
        clock_hz=1e3 * attribute("CLOCK_RATE"),
        memory_clock_hz=1e3 * attribute("MEMORY_CLOCK_RATE"),
        memory_bus_bits=attribute("GLOBAL_MEMORY_BUS_WIDTH"),
        l2_bytes=attribute("L2_CACHE_SIZE"),
        driver=int(str(call("cuDriverGetVersion"))),
    )
