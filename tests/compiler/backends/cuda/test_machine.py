"""CUDA targets: attributes of named architectures, several at once, errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from mlc_compiler.backends.cuda import machine
from mlc_compiler.backends.cuda.machine import ARCHITECTURES, Gpu
from mlc_compiler.target import Target
from mlc_errors import MLCError, UnsupportedError


@pytest.mark.parametrize(
    ("arch", "features", "shared_kib"),
    [("sm_80", "+ptx70", 163), ("sm_86", "+ptx71", 99), ("sm_90a", "+ptx80", 227), ("sm_120", "+ptx87", 99)],
)
def test_attributes_of_an_architecture(arch: str, features: str, shared_kib: int) -> None:
    target = Target(f"cuda:{arch}")
    assert (target.arch, target.cpu, target.features) == ("nvptx64", arch, features)
    assert Gpu.of(target).shared_bytes == shared_kib * 1024
    assert Target(target.export()) == target


def test_of_several_architectures_the_lowest_gets_the_code() -> None:
    target = Target("cuda:sm_120,sm_80,sm_90")
    assert target.cpu == "sm_80"
    assert target.attrs["arch"] == ("sm_80", "sm_90", "sm_120")


def test_given_sizes_replace_those_of_the_table() -> None:
    assert Gpu.of(Target("cuda -arch=sm_90 -multiprocessors=114")).multiprocessors == 114


@pytest.mark.parametrize(
    ("arch", "extension", "expected"),
    [
        ("sm_80", "sm_80", True),
        ("sm_80", "sm_89", False),
        ("sm_120", "sm_89", True),
        ("sm_90a", "sm_90a", True),
        ("sm_120", "sm_90a", False),  # what has an "a" is of one architecture only
        ("sm_90a", "sm_90", True),
        ("sm_80", "ptx70", True),
        ("sm_80", "ptx78", False),
        ("sm_80", "avx2", False),
    ],
)
def test_extensions(arch: str, extension: str, expected: bool) -> None:
    assert Target(f"cuda:{arch}").has(extension) is expected


def test_unknown_architectures_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="arch is 'sm_35'") as error:
        Target("cuda:sm_35")
    assert error.value.hint == f"known: {', '.join(ARCHITECTURES)}"


def test_code_for_one_architecture_only_does_not_run_on_others() -> None:
    with pytest.raises(UnsupportedError, match="code for sm_90a does not run on sm_120") as error:
        Target("cuda:sm_90a,sm_120")
    assert error.value.hint is not None and "sm_90 instead" in error.value.hint


@pytest.mark.parametrize("names", ["sm_80,", ",sm_80", "sm_80,,sm_90", ","])
def test_lists_without_a_name(names: str):
    with pytest.raises(MLCError, match=f"target cuda: arch is '{names}'; expected names with a comma between each two"):
        Target(f"cuda:{names}")
    with pytest.raises(MLCError, match="expected names"):
        Target(f"cuda -arch={names}")


@dataclass(frozen=True)
class FakeDriver:
    """``cuda.bindings.driver`` of a machine with two GPUs; attributes of the second are 10 larger."""

    CUresult = SimpleNamespace(CUDA_SUCCESS="ok")
    ATTRIBUTES = ("COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR", "MULTIPROCESSOR_COUNT")
    MORE = ("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", "MAX_THREADS_PER_MULTIPROCESSOR", "L2_CACHE_SIZE")
    CLOCKS = {"CLOCK_RATE": 1_980_000, "MEMORY_CLOCK_RATE": 3_201_000, "GLOBAL_MEMORY_BUS_WIDTH": 6144}
    CUdevice_attribute = SimpleNamespace(**{f"CU_DEVICE_ATTRIBUTE_{n}": n for n in (*ATTRIBUTES, *MORE, *CLOCKS)})

    def cuInit(self, flags: int) -> tuple[str]:
        return ("ok",)

    def cuDeviceGetCount(self) -> tuple[str, int]:
        return "ok", 2

    def cuDeviceGet(self, ordinal: int) -> tuple[str, int]:
        return "ok", ordinal

    def cuDeviceGetAttribute(self, name: str, device: int) -> tuple[str, int]:
        values = {"COMPUTE_CAPABILITY_MAJOR": 8, "COMPUTE_CAPABILITY_MINOR": (0, 9)[device], **self.CLOCKS}
        return "ok", values.get(name, 64 + 10 * device)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "cuda", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(driver=FakeDriver()))
    machine._detected.cache_clear()
    yield
    machine._detected.cache_clear()


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    ("spec", "arch", "multiprocessors"), [("cuda", "sm_80", 64), ("cuda:0", "sm_80", 64), ("cuda:1", "sm_89", 74)]
)
def test_gpus_of_this_machine_by_number(spec: str, arch: str, multiprocessors: int):
    target = Target(spec)
    assert (target.cpu, target.attrs["multiprocessors"]) == (arch, multiprocessors)
    assert (Gpu.of(target).clock_mhz, Gpu.of(target).memory_gb_per_s) == (1980, 4916)
    assert Target(target.export()) == target


@pytest.mark.usefixtures("two_gpus")
def test_a_number_without_a_gpu():
    with pytest.raises(MLCError, match="there is no device 2; this machine has 2 CUDA devices"):
        Target("cuda:2")


@pytest.mark.usefixtures("two_gpus")
def test_code_that_the_first_gpu_runs():
    """An sm_80 runs PTX for sm_80, and nothing for later ones."""
    assert machine.runs_here(Target("cuda:sm_80"))
    assert not machine.runs_here(Target("cuda:sm_86")) and not machine.runs_here(Target("cuda:sm_90a"))
