"""Metadata is read without loading the library; damaged files raise MLCError."""

from __future__ import annotations

import json
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlc_errors import MLCError, UnsupportedError
from mlc_runtime import Library, host
from mlc_runtime.elf import read_data_symbol
from mlc_runtime.host import host_machine, missing_instruction_sets
from mlc_runtime.metadata import METADATA_SYMBOL, function_specs, read_metadata
from mlc_runtime.model_spec import model_spec
from tests.runtime.elf_image import elf_image
from tests.runtime.fake_library import metadata

SYMBOL = METADATA_SYMBOL.encode()
ARM_OR_X86 = {"x86_64": 62, "aarch64": 183}
METADATA = json.dumps(metadata(258)).encode()


@pytest.fixture
def library_file(tmp_path):
    def write(image: bytes):
        path = tmp_path / "lib.so"
        path.write_bytes(image)
        return path

    return write


@pytest.mark.parametrize("size", [None, 0], ids=["sized symbol", "symbol without size"])
def test_metadata_of_a_library(library_file, size):
    path = library_file(elf_image(SYMBOL, METADATA + b"\0garbage", size=size))
    assert read_metadata(path) == metadata(258)


def test_typed_views():
    spec, functions = model_spec(metadata(258)), function_specs(metadata(258))
    assert (spec.vocab_size, spec.context_window_size, spec.states[0].page_size) == (258, 64, 16)
    assert spec.params[1].packed.function == "pack_negate"
    assert str(functions["embed"].inputs[0]) == "int32 [seq_len]"


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (b"", "empty"),
        (b"\x7fELF", "truncated"),
        (b"MZ\x90\0" * 40, "begins with b'MZ"),
        (b"\x7fELF\x01\x01" + bytes(100), "64-bit"),
        (elf_image(SYMBOL, METADATA, kind=2), "ELF type 2"),
        (elf_image(SYMBOL, METADATA)[:-1], "truncated"),
        (elf_image(SYMBOL, METADATA)[:200], "truncated"),
        (elf_image(b"something_else", METADATA), "not made by this compiler"),
        (elf_image(SYMBOL, b"{not json}\0"), "not JSON"),
        (elf_image(SYMBOL, b"[" * 100_000), "not JSON"),
        (elf_image(SYMBOL, b'{"format": "mlc-lib-0"}\0'), "'mlc-lib-0'; this runtime reads 'mlc-lib-3'"),
        (elf_image(SYMBOL, b"[1]\0"), "format None"),
    ],
)
def test_other_files_are_refused(library_file, image, message):
    path = library_file(image)
    with pytest.raises(MLCError, match=message) as caught:
        Library(path)
    assert str(path) in caught.value.where


def test_size_of_the_file_does_not_matter(library_file):
    path = library_file(b"\x7fELG")
    with open(path, "r+b") as file:
        file.truncate(1 << 40)
    begin = time.process_time()
    with pytest.raises(MLCError, match="begins with"):
        Library(path)
    assert time.process_time() - begin < 5.0  # a reader of all bytes would take minutes


def test_library_for_another_machine_is_read_but_not_run(library_file):
    other = next(code for name, code in ARM_OR_X86.items() if name != host_machine())
    library = Library(library_file(elf_image(SYMBOL, METADATA, machine=other)))
    assert library.metadata["vocab_size"] == 258
    with pytest.raises(UnsupportedError, match=f"this machine is {host_machine()}"):
        library.raw("embed")


def test_library_for_a_newer_cpu_is_refused_before_it_crashes(library_file, tmp_path, monkeypatch):
    (tmp_path / "cpuinfo").write_text("processor : 0\nflags : sse2 avx2 avx512f abm\n")
    monkeypatch.setattr(host, "CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(host, "host_machine", lambda: "x86_64")
    monkeypatch.setattr("mlc_runtime.library.host_machine", lambda: "x86_64")
    needed = ["64bit", "avx2", "avx512f", "avx512vl", "avx512vnni", "lzcnt"]
    target = {"target": {"mcpu": "znver4", "isa": needed}}
    library = Library(library_file(elf_image(SYMBOL, json.dumps(metadata(258) | target).encode())))
    with pytest.raises(UnsupportedError, match="made for the CPU znver4; this one lacks avx512vl, avx512vnni\n"):
        library.raw("embed")
    assert missing_instruction_sets(["avx2", "shstk"]) == []


def test_missing_file(tmp_path):
    with pytest.raises(MLCError, match="No such file"):
        Library(tmp_path / "lib.so")
    with pytest.raises(MLCError, match="embedded null byte"):
        Library("lib\0.so")


def test_fifos_folders_and_devices_are_rejected_without_blocking(tmp_path):
    os.mkfifo(tmp_path / "pipe.so")
    for path in (tmp_path / "pipe.so", tmp_path, "/dev/zero"):
        with pytest.raises(MLCError, match="cannot read the library: it is not a regular file"):
            Library(path)


@given(st.data())
def test_damaged_libraries_give_an_error_or_the_symbol(tmp_path_factory, data):
    image = bytearray(elf_image(SYMBOL, METADATA))
    for _ in range(data.draw(st.integers(1, 4))):
        image[data.draw(st.integers(0, len(image) - len(METADATA) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.so"
    path.write_bytes(image)
    try:
        assert isinstance(read_data_symbol(path, METADATA_SYMBOL).data, bytes)
    except MLCError as error:
        assert str(path) in error.where


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": -5}, "vocab_size is -5"),
        ({"params": [{"name": "w"}]}, "'shape' is missing"),
        ({"states": [{"kind": "paged_kv"}]}, "'sliding_window_size' is missing"),
        ({"states": [{"kind": "ring"}]}, "kind 'ring'; expected one of paged_kv, latent_kv, recurrent"),
        ({"tensor_parallel_shards": 2}, "tensor_parallel_shards is 2; this runtime runs 1"),
    ],
)
def test_malformed_metadata(change, message):
    with pytest.raises(MLCError, match=message):
        model_spec(metadata(258) | change)


def test_a_library_without_a_model():
    with pytest.raises(MLCError, match="holds no model"):
        model_spec({"format": "mlc-lib-3", "functions": {}})
