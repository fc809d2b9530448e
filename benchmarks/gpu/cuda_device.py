"""The GPU that is measured, and the limits that its data sheet gives: from the attributes of the device alone."""

from __future__ import annotations

from dataclasses import dataclass

from mlc_errors import UnsupportedError

MMA_FLOP_PER_CLOCK = {80: 2048, 86: 1024, 89: 1024, 90: 4096, 100: 8192, 120: 1024}
"""Of one multiprocessor's tensor cores, by compute capability: dense products of float16, a multiply-add as two.

From NVIDIA's architecture papers (A100, GA102, Ada, H100, Blackwell). GeForce cards have half of it for sums in
float32.
"""


@dataclass(frozen=True)
class Device:
    """What the driver says of a GPU.

    capability: times 10. clocks: the highest ones. driver: its CUDA version, 13000 for 13.0.
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
        """The rate of the memory's pins: two transfers per clock."""
        return 2 * self.memory_clock_hz * self.memory_bus_bits / 8

    @property
    def mma_flop_per_s(self) -> float | None:
        """Products of float16 on all tensor cores at the highest clock; None for an unknown architecture.

        Data sheets count with a lower clock, 1.83 GHz for the 989 TFLOP/s of an H100 SXM.
        """
        per_clock = MMA_FLOP_PER_CLOCK.get(self.capability)
        return None if per_clock is None else per_clock * self.multiprocessors * self.clock_hz

    @property
    def slug(self) -> str:
        """The name in names of files."""
        return "-".join(self.name.lower().split())


def read_device(ordinal: int = 0) -> Device:
    """Attributes of a GPU. Raises UnsupportedError, which says why, when there is none."""
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
