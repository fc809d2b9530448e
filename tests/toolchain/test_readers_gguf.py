import struct

import gguf
import numpy as np
import pytest

from mlc_toolchain.readers.base import CheckpointError
from mlc_toolchain.readers.gguf import GGUFReader
from mlc_toolchain.readers.gguf_blocks import BLOCK_TYPES, dequantize

QUANTIZED = {number: kind for number, kind in BLOCK_TYPES.items() if kind.decode}


@pytest.mark.parametrize("number", QUANTIZED, ids=[kind.name for kind in QUANTIZED.values()])
def test_blocks_dequantize_as_the_gguf_package_does(number):
    kind = QUANTIZED[number]
    blocks = np.random.default_rng(number).integers(0, 256, (300, kind.nbytes), np.uint8)
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(blocks.reshape(-1), gguf.GGMLQuantizationType(number))
        made = dequantize(blocks, kind)
    finite = np.isfinite(expected)
    assert finite.mean() > 0.8
    assert np.array_equal(finite, np.isfinite(made))
    np.testing.assert_allclose(made[finite], expected[finite], rtol=2e-6, atol=np.abs(expected[finite]).max() * 1e-7)


def test_sizes_of_blocks_are_those_of_the_gguf_package():
    sizes = {number: (kind.elements, kind.nbytes) for number, kind in BLOCK_TYPES.items()}
    expected = {number: gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(number)] for number in BLOCK_TYPES}
    assert sizes == expected


@pytest.fixture
def small_gguf(tmp_path):
    path = tmp_path / "small.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_float32("llama.rope.freq_base", 1e5)
    writer.add_array("tokenizer.ggml.tokens", ["a", "é", ""])
    writer.add_array("sizes", [1, 2, 3])
    writer.add_bool("flag", True)
    writer.add_tensor("half", np.arange(12, dtype=np.float16).reshape(3, 4))
    blocks = gguf.quants.quantize(np.full((2, 64), 127, np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("eight", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_metadata_and_tensors(small_gguf):
    reader = GGUFReader(small_gguf)
    assert reader.metadata["llama.block_count"] == 2
    assert reader.metadata["tokenizer.ggml.tokens"] == ["a", "é", ""]
    assert reader.metadata["sizes"] == [1, 2, 3]
    assert reader.metadata["flag"] is True
    assert reader.names() == ["half", "eight"]
    assert reader.read("half").tolist() == np.arange(12).reshape(3, 4).tolist()
    assert reader.info("eight").shape == (2, 64)
    assert reader.info("eight").nbytes == 2 * 2 * 34
    assert np.array_equal(reader.read("eight"), np.full((2, 64), 127, np.float32))


@pytest.mark.parametrize("name", ["Q4_0", "Q5_0", "Q8_0"])
def test_levels_of_symmetric_blocks(name, tmp_path):
    number = gguf.GGMLQuantizationType[name]
    weights = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_tensor("w", gguf.quants.quantize(weights, number), raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    reader = GGUFReader(tmp_path / "a.gguf")
    levels = reader.group_levels("w")
    assert levels.group == 32
    assert np.array_equal(levels.values(), reader.read("w"))


def test_an_array_that_claims_more_than_the_file_is_refused(tmp_path):
    path = tmp_path / "a.gguf"
    for kind in (0, 8, 9):
        header = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k"
        path.write_bytes(header + struct.pack("<IIQ", 9, kind, 1 << 40) + bytes(64))
        with pytest.raises(CheckpointError):
            GGUFReader(path)


def test_rows_come_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("mlc_toolchain.readers.gguf.ROW_BLOCKS", 7)
    number = gguf.GGMLQuantizationType.Q4_1
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    weights = np.random.default_rng(0).standard_normal((11, 96)).astype(np.float32)
    writer.add_tensor("w", gguf.quants.quantize(weights, number), raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    reader = GGUFReader(tmp_path / "a.gguf")
    pieces = list(reader.read_rows("w"))
    assert [len(piece) for piece in pieces] == [2, 2, 2, 2, 2, 1]
    assert np.array_equal(np.concatenate(pieces), reader.read("w"))


def test_empty_tensors_are_refused(tmp_path):
    path = tmp_path / "a.gguf"
    listed = struct.pack("<Q", 1) + b"w" + struct.pack("<IQQIQ", 2, 1 << 62, 0, 0, 0)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + listed + bytes(64))
    with pytest.raises(CheckpointError):
        GGUFReader(path)
