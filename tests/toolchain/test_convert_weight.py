"""convert_weight beyond the reference files: dry run, formats, report, rejected inputs, memory."""

import json
import os
import re
import stat
import statistics
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from click.testing import CliRunner

from mlc_cli.__main__ import main
from mlc_cli.convert_weight import convert_weight as command
from mlc_errors import MLCError, UsageError
from mlc_toolchain import writer
from mlc_toolchain.convert_weight import ConvertOptions, convert_weight, plan_conversion
from mlc_toolchain.readers.safetensors import SafetensorsReader
from mlc_toolchain.weight_stream import all_finite, float32_to_bfloat16
from quantization.schemes import SCHEMES

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "tests" / "data" / "reference" / "source"


def options(output, quantization="q4f16_1", source=SOURCE, **others):
    return ConvertOptions(str(source), quantization, output, **others)


def tensors_of(folder):
    """The tensors of an output folder in MLC's format."""
    found = {}
    for shard in json.loads((folder / "tensor-cache.json").read_text())["records"]:
        data = (folder / shard["dataPath"]).read_bytes()
        for record in shard["records"]:
            part = data[record["byteOffset"] : record["byteOffset"] + record["nbytes"]]
            exact = record["dtype"] != "float32" or record["format"] == "raw"
            dtype = getattr(ml_dtypes, record["dtype"], record["dtype"]) if exact else ml_dtypes.bfloat16
            found[record["name"]] = np.frombuffer(part, dtype).reshape(record["shape"])
    return found


def checkpoint(folder, change):
    """A copy of the source with tensors and config modified by ``change(tensors, config)``."""
    tensors = {
        name: np.array(value) for name, value in safetensors.numpy.load_file(SOURCE / "model.safetensors").items()
    }
    config = json.loads((SOURCE / "config.json").read_text())
    folder.mkdir()
    change(tensors, config)
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_dry_run_finds_a_full_disk(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(writer, "free_space", lambda folder: 1000)
    assert (
        main(["convert_weight", str(SOURCE), "--quantization", "q0f16", "--dry-run", "-o", str(tmp_path / "out")]) == 4
    )
    shown = capsys.readouterr().err
    assert "error: not enough disk space: got 1000 bytes; expected 980224 (979224 missing)" in shown
    assert "MLC_CACHE_DIR" in shown


@pytest.mark.parametrize("scheme", [name for name, scheme in SCHEMES.items() if scheme.kind in ("none", "group", "ft")])
@pytest.mark.parametrize("output_format", ["mlc", "safetensors"])
def test_a_dry_run_reports_the_exact_size(scheme, output_format, tmp_path, monkeypatch):
    def small(tensors, config):  # scales of one byte do not hold the largest of these weights, 700
        name = "model.layers.0.self_attn.q_proj.weight"
        tensors[name] = np.clip(tensors[name], -15, 15)

    source = checkpoint(tmp_path / "source", small) if SCHEMES[scheme].byte_scales else SOURCE
    arguments = [str(source), "--quantization", scheme, "--output-format", output_format, "--json", "-o"]
    told = []
    for extra in (["--dry-run"], []):
        with monkeypatch.context() as patch:
            if extra:
                patch.setattr(SafetensorsReader, "read", lambda *_: pytest.fail("a dry run read a tensor"))
            result = CliRunner().invoke(command, [*arguments, str(tmp_path / "out"), *extra], catch_exceptions=False)
        told.append(json.loads(result.stdout))
        assert (tmp_path / "out").exists() == (not extra)
    assert told[0]["output_bytes"] == told[1]["output_bytes"]
    files = list((tmp_path / "out").iterdir())
    assert told[1]["files"] == len(files)
    data = sum(path.stat().st_size for path in files if path.suffix != ".json")
    headers = sum(_header_bytes(path) for path in files if path.suffix == ".safetensors")
    assert told[1]["output_bytes"] == data
    per_parameter = 8 * (data - headers) / told[1]["parameters"]
    assert told[1]["bits_per_parameter"] == pytest.approx(per_parameter, abs=1e-9)


def _header_bytes(path):
    return 8 + int.from_bytes(path.read_bytes()[:8], "little")


def test_float32_is_stored_exactly_by_default(tmp_path):
    def widen(tensors, config):
        for name in tensors:
            tensors[name] = tensors[name].astype(np.float32) * np.float32(1.0001)

    source = checkpoint(tmp_path / "source", widen)
    convert_weight(options(tmp_path / "raw", "q0f32", source))
    convert_weight(options(tmp_path / "bf16", "q0f32", source, f32_storage="bf16"))
    exact = safetensors.numpy.load_file(source / "model.safetensors")["model.norm.weight"]
    raw, narrow = (tensors_of(tmp_path / name)["model.norm.weight"] for name in ("raw", "bf16"))
    assert np.array_equal(raw, exact)
    assert np.array_equal(narrow, exact.astype(ml_dtypes.bfloat16))
    assert not (tmp_path / "raw" / "tensor-cache-b16.json").exists()
    index = json.loads((tmp_path / "raw" / "tensor-cache.json").read_text())
    assert {r["format"] for shard in index["records"] for r in shard["records"]} == {"raw"}


def test_bfloat16_storage_truncates_values_beyond_its_range():
    largest = np.float32(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
    values = np.array([1.00390625, 1.01171875, np.finfo(np.float32).max, -np.finfo(np.float32).max, np.inf], np.float32)
    made = float32_to_bfloat16(values).astype(np.float32)
    assert made.tolist() == [1.0, 1.015625, largest, -largest, np.inf]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_all_finite(dtype):
    values = np.array([0, 1, -2.5, 6e4, -6e4, 1e-7], getattr(ml_dtypes, dtype, None) or dtype)
    assert all_finite(values)
    for odd in (np.nan, np.inf, -np.inf):
        values[2] = odd
        assert not all_finite(values)


def test_safetensors_output_holds_the_same_tensors(tmp_path):
    convert_weight(options(tmp_path / "mlc"))
    convert_weight(options(tmp_path / "st", output_format="safetensors"))
    made = safetensors.numpy.load_file(tmp_path / "st" / "model.safetensors")
    expected = tensors_of(tmp_path / "mlc")
    assert made.keys() == expected.keys()
    for name, value in expected.items():
        assert made[name].dtype == value.dtype
        assert np.array_equal(made[name], value)
    with safetensors.safe_open(tmp_path / "st" / "model.safetensors", "np") as file:
        assert file.metadata() == {"format": "mlc", "quantization": "q4f16_1", "model_type": "llama"}


def test_large_safetensors_output_is_sharded(tmp_path, monkeypatch):
    monkeypatch.setattr("mlc_toolchain.output_layout.SAFETENSORS_SHARD_BYTES", 100_000)
    convert_weight(options(tmp_path / "many", output_format="safetensors"))
    monkeypatch.undo()
    convert_weight(options(tmp_path / "one", output_format="safetensors"))
    index = json.loads((tmp_path / "many" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 278912
    whole = safetensors.numpy.load_file(tmp_path / "one" / "model.safetensors")
    assert index["weight_map"].keys() == whole.keys()
    for name, file in index["weight_map"].items():
        assert re.fullmatch(r"model-0000\d-of-00004.safetensors", file)
        assert np.array_equal(safetensors.numpy.load_file(tmp_path / "many" / file)[name], whole[name])
    convert_weight(options(tmp_path / "many", output_format="safetensors"))
    assert sorted(os.listdir(tmp_path / "many")) == ["model.safetensors"]


def test_the_source_folder_is_never_written_to(tmp_path):
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in SOURCE.iterdir()}
    convert_weight(options(tmp_path / "out"))
    assert {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in SOURCE.iterdir()} == before
    with pytest.raises(UsageError, match=r"holds the checkpoint's model.safetensors"):
        convert_weight(options(SOURCE))


def test_an_output_folder_among_read_only_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    convert_weight(options(Path("/proc/self/cwd")))
    assert tensors_of(tmp_path).keys() > {"lm_head.q_weight"}


def test_files_have_the_permissions_of_the_umask(tmp_path):
    convert_weight(options(tmp_path / "out"))
    old = os.umask(0)
    os.umask(old)
    for path in (tmp_path / "out").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~old


def test_any_number_of_threads_writes_the_same_bytes(tmp_path, monkeypatch):
    for threads in (1, 2, 7):
        monkeypatch.setattr("mlc_toolchain.weight_stream.usable_cores", lambda threads=threads: threads)
        convert_weight(options(tmp_path / str(threads)))
    for path in (tmp_path / "1").iterdir():
        assert path.read_bytes() == (tmp_path / "2" / path.name).read_bytes()
        assert path.read_bytes() == (tmp_path / "7" / path.name).read_bytes()


def test_the_report_has_an_error_for_every_parameter(tmp_path):
    report = convert_weight(options(tmp_path / "out", report=tmp_path / "report.json"))
    told = json.loads((tmp_path / "report.json").read_text())
    errors = {entry["name"]: entry["relative_error"] for entry in told["parameters_detail"]}
    assert len(errors) == 15
    assert errors["model.norm.weight"] == 0
    assert 0.09 < errors["lm_head.weight"] < 0.1
    assert errors["model.layers.0.self_attn.qkv_proj.weight"] < 0.01  # it has a few very large weights
    assert 0.001 < report.relative_error < 0.1
    assert sum(entry["bytes"] for entry in told["parameters_detail"]) == report.output_bytes


def test_the_error_is_told_without_a_report(tmp_path, monkeypatch):
    """From the first rows of each parameter; the largest one and parameters far from the others are named."""
    exact = convert_weight(options(tmp_path / "all", report=tmp_path / "report.json"))
    told = json.loads((tmp_path / "report.json").read_text())["parameters_detail"]
    largest = max(told, key=lambda entry: entry["relative_error"])
    assert (exact.worst_parameter, exact.worst_error) == (largest["name"], largest["relative_error"])
    monkeypatch.setattr("mlc_toolchain.convert_weight.SAMPLE", 2000)
    report = convert_weight(options(tmp_path / "sampled"))
    assert report.relative_error == pytest.approx(exact.relative_error, rel=0.2) and report.worst_error < 0.12
    lossy = sorted(entry["relative_error"] for entry in told if entry["relative_error"])
    far = [entry["name"] for entry in told if entry["relative_error"] > 2 * statistics.median(lossy)]
    assert bool(far) == ("more than 2 times the median" in exact.note) and all(name in exact.note for name in far[:3])


def test_the_report_as_a_page_begins_with_the_largest_error(tmp_path):
    report = convert_weight(options(tmp_path / "out", report=tmp_path / "report.html"))
    page = (tmp_path / "report.html").read_text()
    rows = re.findall(r"<tr><td>([\w.]+)</td><td>.*</td>\n<td>[\d,]+</td>\n<td>([\d.]*)</td>", page)
    errors = {name: float(error or 0) for name, error in rows}
    assert len(rows) == 15 and list(errors.values()) == sorted(errors.values(), reverse=True)
    assert 0.09 < errors["lm_head.weight"] < 0.1
    assert f"<td>{report.output_bytes}</td>" in page and "http" not in page


def test_a_bias_that_the_config_does_not_mention_is_an_error(tmp_path):
    def add(tensors, config):
        tensors["model.layers.0.self_attn.q_proj.bias"] = np.zeros(128, np.float16)

    with pytest.raises(MLCError) as caught:
        convert_weight(options(tmp_path / "out", source=checkpoint(tmp_path / "source", add)))
    assert "q_proj.bias [128] of the checkpoint has no use" in caught.value.where[0]
    assert not (tmp_path / "out").exists()


def test_biases_that_the_config_mentions_are_converted(tmp_path):
    def add(tensors, config):
        config["attention_bias"] = True
        for layer in range(2):
            for part, size in (("q", 128), ("k", 64), ("v", 64), ("o", 128)):
                tensors[f"model.layers.{layer}.self_attn.{part}_proj.bias"] = np.full(size, ord(part), np.float16)

    convert_weight(options(tmp_path / "out", source=checkpoint(tmp_path / "source", add)))
    bias = tensors_of(tmp_path / "out")["model.layers.1.self_attn.qkv_proj.bias"]
    assert bias.tolist() == [ord("q")] * 128 + [ord("k")] * 64 + [ord("v")] * 64


@pytest.mark.parametrize("equal", [True, False])
def test_a_tied_head_that_is_stored_must_equal_the_table(equal, tmp_path):
    def tie(tensors, config):
        config["tie_word_embeddings"] = True
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + np.float16(0 if equal else 1)

    source = checkpoint(tmp_path / "source", tie)
    if equal:
        convert_weight(options(tmp_path / "out", source=source))
        assert "lm_head.q_weight" not in tensors_of(tmp_path / "out")
    else:
        with pytest.raises(MLCError, match=r"lm_head.weight differs from model.embed_tokens.weight"):
            convert_weight(options(tmp_path / "out", source=source))


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in ("model.norm.weight", "lm_head.weight") for value in (1e6, np.inf, np.nan)],
)
def test_values_that_the_dtype_cannot_hold_are_an_error(name, value, tmp_path):
    def spoil(tensors, config):
        tensors[name] = tensors[name].astype(np.float32)
        tensors[name].flat[0] = value

    source = checkpoint(tmp_path / "source", spoil)
    with pytest.raises(MLCError, match=f"{name} has values that float16 cannot hold") as caught:
        convert_weight(options(tmp_path / "out", source=source))
    assert caught.value.where == (str(source / "model.safetensors"),)
    assert not (tmp_path / "out" / "tensor-cache.json").exists()


def test_values_beyond_the_largest_scale_are_an_error(tmp_path):
    def spoil(tensors, config):
        tensors["lm_head.weight"].flat[5] = 16

    source = checkpoint(tmp_path / "source", spoil)
    with pytest.raises(MLCError, match=r"lm_head.weight has values that q3f16_nl8 cannot hold") as caught:
        convert_weight(options(tmp_path / "out", source=source, quantization="q3f16_nl8"))
    assert "q4f16_nl" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"model_type": "unheard"}, 3, "unheard"),
        ({"model_type": None}, 1, "expected a name"),
        ({"hidden_size": 64}, 1, "do not have the shape that the config gives"),
        ({"num_hidden_layers": 3}, 1, "9 missing and 0 left-over"),
        ({"hidden_act": "gelu"}, 3, "hidden_act"),
    ],
)
def test_configs_that_do_not_fit_end_with_one_message(change, code, message, tmp_path, capsys):
    source = checkpoint(tmp_path / "source", lambda tensors, config: config.update(change))
    arguments = ["convert_weight", str(source), "--quantization", "q4f16_1", "-o", str(tmp_path / "out")]
    assert main(arguments) == code
    told = capsys.readouterr().err
    assert message in told
    assert "Traceback" not in told
    assert not (tmp_path / "out").exists()


def test_unknown_choices_list_the_known_ones(tmp_path):
    with pytest.raises(UsageError, match=r"got 'q5f16'; expected one of q0f16"):
        plan_conversion(options(tmp_path, "q5f16"))
    with pytest.raises(UsageError, match="got 'zip'; expected one of mlc, safetensors"):
        plan_conversion(options(tmp_path, output_format="zip"))
    with pytest.raises(UsageError, match="got 'f64'; expected one of raw, bf16"):
        plan_conversion(options(tmp_path, f32_storage="f64"))
    with pytest.raises(UsageError, match="got 'tar'; expected one of auto, safetensors, pytorch"):
        plan_conversion(options(tmp_path, source_format="tar"))


def test_a_preset_takes_its_weights_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("mlc_toolchain.source.PRESETS", tmp_path)
    (tmp_path / "tiny-test.json").write_bytes((SOURCE / "config.json").read_bytes())
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "model.safetensors").symlink_to(SOURCE / "model.safetensors")
    with pytest.raises(UsageError, match="preset tiny-test has a config and no weights"):
        convert_weight(options(tmp_path / "out", source="tiny-test"))
    convert_weight(options(tmp_path / "out", source="tiny-test", weights=str(tmp_path / "weights")))
    convert_weight(options(tmp_path / "expected"))
    assert (tmp_path / "out" / "params_shard_0.bin").read_bytes() == (
        tmp_path / "expected" / "params_shard_0.bin"
    ).read_bytes()
    with pytest.raises(UsageError) as caught:
        convert_weight(options(tmp_path / "out", source="tiny-tset"))
    assert caught.value.hint == "presets of similar names: tiny-test"


def test_an_interrupted_run_reports_how_to_continue(tmp_path, monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("mlc_toolchain.writer.OutputWriter.write", interrupt)
    assert main(["convert_weight", str(SOURCE), "--quantization", "q4f16_1", "-o", str(tmp_path / "out")]) == 130
    assert "the same command will continue where this run stopped" in capsys.readouterr().err


def test_the_mapping_is_printed(tmp_path):
    arguments = [str(SOURCE), "--quantization", "q4f16", "-o", str(tmp_path), "--show-mapping"]
    lines = CliRunner().invoke(command, arguments).stdout.splitlines()
    assert len(lines) == 15
    assert lines[3] == "model.layers.0.mlp.down_proj.weight [128, 176] = model.layers.0.mlp.down_proj.weight"
    gate, up = (f"model.layers.0.mlp.{p}_proj.weight" for p in ("gate", "up"))
    assert lines[4] == f"model.layers.0.mlp.gate_up_proj.weight [352, 128] = concat({gate}, {up}, axis=0)"


MEASURE = """
import sys
from pathlib import Path
from mlc_toolchain.convert_weight import ConvertOptions, convert_weight
def peak(): return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = peak()
convert_weight(ConvertOptions(sys.argv[1], "q4f16_1", Path(sys.argv[2])))
print(peak() - before)
"""


def test_memory_does_not_grow_with_the_model(tmp_path):
    used = []
    for layers in (3, 13):
        source = sparse_llama(tmp_path / f"source{layers}", layers)
        command = [sys.executable, "-c", MEASURE, str(source), str(tmp_path / f"out{layers}")]
        used.append(int(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout))
    assert (tmp_path / "source13" / "model.safetensors").stat().st_size > 180 << 20
    assert used[1] < used[0] + (24 << 20)
    assert used[1] < 120 << 20


def sparse_llama(folder, layers):
    """A checkpoint of zeros as a sparse file: 14.7 MB per layer."""
    hidden, inner = 512, 4096
    sizes = {"self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (hidden, hidden)}
    sizes |= {"self_attn.v_proj": (hidden, hidden), "self_attn.o_proj": (hidden, hidden)}
    sizes |= {"mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)}
    sizes |= {"input_layernorm": (hidden,), "post_attention_layernorm": (hidden,)}
    shapes = {f"model.layers.{i}.{name}.weight": shape for i in range(layers) for name, shape in sizes.items()}
    shapes |= {"model.embed_tokens.weight": (1000, hidden), "model.norm.weight": (hidden,)}
    folder.mkdir()
    header, offset = {}, 0
    for name, shape in shapes.items():
        stop = offset + 2 * int(np.prod(shape))
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [offset, stop]}
        offset = stop
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + offset)
    config = {"model_type": "llama", "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers}
    config |= {"num_attention_heads": 8, "vocab_size": 1000, "rms_norm_eps": 1e-5, "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(config))
    return folder
