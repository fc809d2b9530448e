"""Fuzz the checkpoint readers: every damaged input must read correctly or raise MLCError.

    python -m tests.toolchain.fuzz --count 1000000 [--format safetensors] [--seed 7]

Memory is limited; a case that takes longer than GUARD_SECONDS counts as a hang. A failing input is kept in --keep.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import resource
import signal
import struct
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import safetensors.numpy
import torch

from mlc_errors import MLCError
from mlc_toolchain.conversion_plan import describe_model, plan_weights
from mlc_toolchain.gguf_checkpoint import GGUFCheckpoint
from mlc_toolchain.lora import LoraCheckpoint
from mlc_toolchain.packed_checkpoint import open_packed
from mlc_toolchain.readers.bounded_json import read_json_object
from mlc_toolchain.readers.checkpoint import open_checkpoint
from mlc_toolchain.readers.gguf import GGUFReader
from mlc_toolchain.readers.safetensors import SafetensorsReader
from mlc_toolchain.readers.torch_bin import TorchReader
from mlc_toolchain.source import FolderSource
from quantization.schemes import get_scheme
from tests.toolchain import packing

GUARD_SECONDS = 10
MEMORY_BYTES = 512 << 20
READ_LIMIT = 1 << 20
NUMBERS = (0, 1, 2, 7, 8, 255, 256, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**48, 2**63 - 1, 2**63, 2**64 - 1)
VALUES = (
    *NUMBERS, -1, -(2**63), 1.5, -0.0, 1e308, float("nan"), True, False, None, "", "F32", "F16", "F99", "..", "../x",
    "\0", "é", "a" * 600, [], {}, [0], [[]], [1, 2], [0, 4], [4, 0], {"a": 1}, [2**63] * 8, [1] * 9,
)  # fmt: skip


def read_everything(reader):
    """Read all tensors of up to READ_LIMIT elements and access every byte."""
    for name in reader.names():
        info = reader.info(name)
        if info.elements <= READ_LIMIT:
            array = reader.read(name)
            assert array.shape == info.shape, f"{name}: read {array.shape}, info has {info.shape}"
            assert array.dtype.name == info.dtype, f"{name}: read {array.dtype}, info has {info.dtype}"
            np.ascontiguousarray(array).view(np.uint8).sum() if array.size else None
        reader.release(name)


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(8):
            case 0 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(out):
                out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 2:
                out[at:at] = rng.randbytes(rng.choice((1, 4, 8, 64)))
            case 3:
                del out[at : at + rng.choice((1, 4, 8, 64))]
            case 4:
                del out[at:]
            case 5:
                out[at:at] = out[at : at + rng.choice((1, 8, 64))]
            case 6:
                out[at : at + 4] = struct.pack("<I", rng.choice(NUMBERS) & 0xFFFFFFFF)
            case 7:
                out[at : at + 8] = struct.pack("<Q", rng.choice(NUMBERS))
        if not out:
            break
    return bytes(out)


def mutate_json(value, rng: random.Random):
    """One node of a JSON value replaced, dropped, doubled or renamed."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(list(value))
        match rng.randrange(6):
            case 0:
                return {k: v for k, v in value.items() if k != key}
            case 1:
                return {**value, rng.choice((*(str(v)[:600] for v in VALUES), key + "x")): value[key]}
            case 2:
                return {**value, key: rng.choice(VALUES)}
            case _:
                return {**value, key: mutate_json(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return [*value[:at], mutate_json(value[at], rng), *value[at + 1 :]]
    return rng.choice(VALUES)


def dumped(value, rng: random.Random) -> bytes:
    text = json.dumps(value).encode()
    return mutate_bytes(text, rng) if rng.random() < 0.2 else text


class Target:
    """A kind of input: a valid example, how it is damaged, how it is read."""

    def __init__(self, folder: Path):
        self.folder = folder

    def mutated(self, rng: random.Random) -> bytes:
        return mutate_bytes(self.example, rng)

    def check(self, data: bytes) -> None:
        raise AssertionError("a target reads its input")


class Safetensors(Target):
    def __init__(self, folder):
        super().__init__(folder)
        tensors = {"a.weight": np.ones((3, 4), np.float32), "b": np.zeros(5, np.float16), "c": np.ones((), np.int8)}
        self.example = safetensors.numpy.save(tensors, {"format": "pt"})
        length = int.from_bytes(self.example[:8], "little")
        self.header, self.data = json.loads(self.example[8 : 8 + length]), self.example[8 + length :]

    def mutated(self, rng):
        if rng.random() < 0.3:
            return mutate_bytes(self.example, rng)
        text = dumped(mutate_json(self.header, rng), rng)
        return len(text).to_bytes(8, "little") + text + self.data

    def check(self, data):
        path = self.folder / "model.safetensors"
        path.write_bytes(data)
        read_everything(SafetensorsReader(path))


class GGUF(Target):
    def __init__(self, folder):
        super().__init__(folder)
        path = folder / "example.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        for key, value in (("block_count", 1), ("embedding_length", 64), ("feed_forward_length", 32)):
            writer.add_uint32(f"llama.{key}", value)
        for key, value in (("attention.head_count", 2), ("attention.head_count_kv", 1), ("context_length", 64)):
            writer.add_uint32(f"llama.{key}", value)
        writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
        writer.add_array("tokenizer.ggml.tokens", ["a", "b", "ü"])
        writer.add_array("tokenizer.ggml.token_type", [1, 1, 1])
        writer.add_string("general.name", "x" * 40)
        writer.add_tensor("token_embd.weight", np.ones((3, 64), np.float16))
        for name, kind in (("ffn_down", "Q4_1"), ("attn_q", "Q8_0"), ("attn_k", "Q5_0")):
            number = gguf.GGMLQuantizationType[kind]
            blocks = gguf.quants.quantize(np.ones((4, 64), np.float32), number)
            writer.add_tensor(f"blk.0.{name}.weight", blocks, raw_dtype=number)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        self.example = path.read_bytes()

    def check(self, data):
        path = self.folder / "model.gguf"
        path.write_bytes(data)
        with np.errstate(all="ignore"):
            read_everything(GGUFReader(path))
            checkpoint = GGUFCheckpoint(path)
            checkpoint.config()
            read_everything(checkpoint)


class TorchZip(Target):
    zipped = True

    def __init__(self, folder):
        super().__init__(folder)
        path = folder / "example.bin"
        base = torch.arange(12.0).reshape(3, 4)
        tensors = {"a.weight": base, "b": base.T, "c": torch.ones(2).half(), "d": torch.nn.Parameter(torch.ones(2, 2))}
        torch.save(tensors, path, _use_new_zipfile_serialization=self.zipped)
        self.example = path.read_bytes()

    def check(self, data):
        path = self.folder / "pytorch_model.bin"
        path.write_bytes(data)
        read_everything(TorchReader(path))


class TorchLegacy(TorchZip):
    zipped = False


class Pickle(TorchZip):
    """Only the pickle inside of a zip archive is damaged."""

    def __init__(self, folder):
        super().__init__(folder)
        with zipfile.ZipFile(folder / "example.bin") as archive:
            self.members = {info.filename: archive.read(info) for info in archive.infolist()}
        self.example = self.members["example/data.pkl"]

    def check(self, data):
        path = self.folder / "pytorch_model.bin"
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in self.members.items():
                archive.writestr(name, data if name.endswith("data.pkl") else content)
        read_everything(TorchReader(path))


class Index(Target):
    def __init__(self, folder):
        super().__init__(folder / "sharded")
        self.folder.mkdir()
        for file in ("one", "two"):
            safetensors.numpy.save_file({file: np.ones(2, np.float32)}, self.folder / f"{file}.safetensors")
        placed = {"one": "one.safetensors", "two": "two.safetensors"}
        self.value = {"metadata": {"total_size": 16}, "weight_map": placed}

    def mutated(self, rng):
        return dumped(mutate_json(self.value, rng), rng)

    def check(self, data):
        (self.folder / "model.safetensors.index.json").write_bytes(data)
        read_everything(open_checkpoint(self.folder))


class Config(Target):
    """A damaged config.json beside good weights, up to the finished plan."""

    def __init__(self, folder):
        super().__init__(folder)
        source = Path(__file__).parent.parent / "data" / "reference" / "source"
        self.value = read_json_object(source / "config.json")
        self.value |= {"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "attention_bias": False}
        self.weights = FolderSource(source).weights()

    def mutated(self, rng):
        return dumped(mutate_json(self.value, rng), rng)

    def check(self, data):
        (self.folder / "config.json").write_bytes(data)
        scheme = get_scheme("q4f16_1")
        plan_weights(describe_model(FolderSource(self.folder).config(), "auto", scheme), scheme, self.weights)


class Packed(Safetensors):
    """A GPTQ layer: its quantization_config or the header of its file is damaged."""

    def __init__(self, folder):
        Target.__init__(self, folder)
        parts = packing.random_codes(np.random.default_rng(0), 32, 64, 32, 4)
        tensors = packing.gptq_tensors("layer", *parts, 4, np.arange(64) // 32)
        self.example = safetensors.numpy.save(tensors)
        length = int.from_bytes(self.example[:8], "little")
        self.header, self.data = json.loads(self.example[8 : 8 + length]), self.example[8 + length :]
        self.told = {"quant_method": "gptq", "bits": 4, "group_size": 32, "checkpoint_format": "gptq"}

    def mutated(self, rng):
        told = self.told if rng.random() < 0.5 else mutate_json(self.told, rng)
        file = super().mutated(rng) if told is self.told else self.example
        return json.dumps(told).encode() + b"\n" + file

    def check(self, data):
        told, _, file = data.partition(b"\n")
        path = self.folder / "model.safetensors"
        path.write_bytes(file)
        config = {"quantization_config": json.loads(told)}
        reader = open_packed(SafetensorsReader(path), config, "config.json")
        read_everything(reader)
        for name in reader.names():
            reader.group_levels(name)


class Adapter(Target):
    """A LoRA adapter: its adapter_config.json or the header of its file is damaged."""

    def __init__(self, folder):
        super().__init__(folder)
        safetensors.numpy.save_file({"model.a.weight": np.ones((6, 4), np.float16)}, folder / "model.safetensors")
        pair = {"a.lora_A.weight": np.ones((2, 4), np.float32), "a.lora_B.weight": np.ones((6, 2), np.float32)}
        self.file = safetensors.numpy.save({f"base_model.model.model.{name}": value for name, value in pair.items()})
        length = int.from_bytes(self.file[:8], "little")
        self.header, self.data = json.loads(self.file[8 : 8 + length]), self.file[8 + length :]
        self.config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "fan_in_fan_out": False, "use_rslora": False}

    def mutated(self, rng):
        if rng.random() < 0.5:
            return dumped(mutate_json(self.config, rng), rng).replace(b"\n", b" ") + b"\n" + self.file
        text = dumped(mutate_json(self.header, rng), rng)
        return json.dumps(self.config).encode() + b"\n" + len(text).to_bytes(8, "little") + text + self.data

    def check(self, data):
        config, _, file = data.partition(b"\n")
        (self.folder / "adapter_config.json").write_bytes(config)
        (self.folder / "adapter_model.safetensors").write_bytes(file)
        with np.errstate(all="ignore"):
            read_everything(LoraCheckpoint(SafetensorsReader(self.folder / "model.safetensors"), self.folder))


TARGETS: dict[str, Callable[[Path], Target]] = {
    "safetensors": Safetensors,
    "gguf": GGUF,
    "torch-zip": TorchZip,
    "torch-legacy": TorchLegacy,
    "pickle": Pickle,
    "index": Index,
    "config": Config,
    "packed": Packed,
    "adapter": Adapter,
}


def outcome(target: Target, data: bytes) -> str:
    """ "read", "refused", or a description of the failure."""
    signal.setitimer(signal.ITIMER_REAL, GUARD_SECONDS)
    try:
        target.check(data)
        return "read"
    except MLCError as error:
        return "refused" if len(str(error)) < 20_000 else "error text without end"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def run(name: str, count: int, seed: int, keep: Path | None) -> Counter:
    counts: Counter = Counter()
    with tempfile.TemporaryDirectory(prefix="fuzz") as folder:
        target = TARGETS[name](Path(folder))
        for number in range(count):
            data = target.mutated(random.Random(f"{name} {seed} {number}"))
            result = outcome(target, data)
            counts[result] += 1
            if keep and result not in ("read", "refused"):
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"{name}-{seed}-{number}").write_bytes(data)
    return counts


def limit_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, used + MEMORY_BYTES))


def hang(*_):
    raise TimeoutError(f"not done after {GUARD_SECONDS} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="inputs in total")
    parser.add_argument("--format", choices=TARGETS, action="append", help="default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for inputs that fail")
    options = parser.parse_args()
    limit_memory()
    signal.signal(signal.SIGALRM, hang)
    names = options.format or list(TARGETS)
    results = {name: run(name, options.count // len(names), options.seed, options.keep) for name in names}
    print(json.dumps(results, indent=2))
    failed = any(set(counts) - {"read", "refused"} for counts in results.values())
    return int(failed)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
