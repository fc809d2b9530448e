"""CUDA targets: attributes of named architectures, several at once, errors."""

from __future__ import annotations

import pytest

from mlc_compiler.backends.cuda.machine import ARCHITECTURES, Gpu
from mlc_compiler.target import Target
from mlc_errors import UnsupportedError


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
