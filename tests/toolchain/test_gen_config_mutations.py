"""With damaged checkpoints, gen_config writes a configuration that reads back, or raises MLCError."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlc_errors import MLCError
from mlc_toolchain.chat_config import read_chat_config
from mlc_toolchain.gen_config import GenConfigOptions, gen_config

SOURCE = Path(__file__).parents[1] / "data" / "reference" / "source"
NAMES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
VALUES = (
    "null",
    "true",
    "-1",
    "0",
    "3",
    "1e308",
    "NaN",
    "1073741824",
    "340282366920938463463374607431768211456",
    '""',
    '"</s>"',
    '"\\ud800"',
    "[]",
    "[7]",
    '["a", {}]',
    "{}",
    '{"content": 5}',
    '{"rope_type": "llama3", "factor": "x"}',
    "[" * 2000 + "]" * 2000,
    "9" * 5000,
)
CHATML = (SOURCE.parents[1] / "conv_chatml.jinja").read_text()


class Folder:
    """The reference checkpoint's small files; `write` replaces one, `run` runs gen_config and checks the outcome."""

    def __init__(self, folder: Path):
        self.source, self.output = folder / "source", folder / "out"
        self.source.mkdir()
        for name in NAMES:
            shutil.copyfile(SOURCE / name, self.source / name)
        self.outcomes: Counter[str] = Counter()

    def write(self, name: str, data: bytes) -> None:
        (self.source / name).write_bytes(data)

    def run(self) -> None:
        shutil.rmtree(self.output, ignore_errors=True)
        try:
            gen_config(GenConfigOptions(str(self.source), "q4f16_1", self.output))
        except MLCError as error:
            assert 0 < len(error.message) < 2000
            assert not self.output.exists()
            self.outcomes["refused"] += 1
        else:
            assert read_chat_config(self.output).to_dict() == json.loads(
                (self.output / "mlc-chat-config.json").read_text()
            )
            self.outcomes["written"] += 1


@pytest.fixture
def folder(tmp_path) -> Folder:
    return Folder(tmp_path)


def with_value(text: str, key: str, value: str) -> str:
    """The JSON object `text` with the literal `value` for `key`."""
    marked = json.dumps(json.loads(text) | {key: "\0mark"})
    return marked.replace('"\\u0000mark"', value)


KEYS = {
    "config.json": (
        *json.loads((SOURCE / "config.json").read_text()),
        "rope_scaling",
        "rope_parameters",
        "sliding_window",
        "layer_types",
        "quantization_config",
    ),
    "generation_config.json": ("bos_token_id", "eos_token_id", "pad_token_id", "temperature", "top_p", "do_sample"),
    "tokenizer_config.json": ("tokenizer_class", "bos_token", "eos_token", "unk_token", "pad_token", "chat_template"),
}


@pytest.mark.parametrize("name", KEYS)
def test_values(folder, name):
    original = (SOURCE / name).read_text()
    for key in KEYS[name]:
        for value in VALUES:
            folder.write(name, with_value(original, key, value).encode())
            folder.run()
    assert folder.outcomes.total() == len(KEYS[name]) * len(VALUES)
    assert min(folder.outcomes["refused"], folder.outcomes["written"]) > 10


def damaged(data: bytes, count: int, seed: int) -> Iterator[bytes]:
    """`data` cut, with bytes changed, or with a part doubled or removed."""
    rng = random.Random(seed)
    for _ in range(count):
        at, end = sorted(rng.sample(range(len(data)), 2))
        yield rng.choice(
            (
                data[:at],
                data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :],
                data[:end] + data[at:],
                data[:at] + data[end:],
            )
        )


@pytest.mark.parametrize(
    ("name", "count"), [("config.json", 60), ("tokenizer_config.json", 30), ("tokenizer.json", 60)]
)
def test_bytes(folder, name, count):
    for data in damaged((SOURCE / name).read_bytes(), count, seed=len(name)):
        folder.write(name, data)
        folder.run()
    assert folder.outcomes["refused"] > count / 2


def test_templates(folder):
    rng = random.Random(2)
    places = [rng.randrange(len(CHATML)) for _ in range(60)]
    one_letter = [(CHATML[:at] + rng.choice("x'{}% ") + CHATML[at + 1 :]).encode() for at in places]
    for data in [*damaged(CHATML.encode(), 40, seed=1), *one_letter]:
        folder.write("chat_template.jinja", data)
        folder.run()
    assert min(folder.outcomes["refused"], folder.outcomes["written"]) > 10


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(9999) %}{% for b in range(9999) %}{{ a * b }}{% endfor %}{% endfor %}",
        "{{ 'a' * 2000000000 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{% include '/etc/passwd' %}",
        "{{ raise_exception('no') }}",
        "{% while true %}{% endwhile %}",
    ],
    ids=["loops", "memory", "recursion", "escape", "include", "raise", "tag"],
)
def test_hostile_templates(folder, template):
    folder.write("chat_template.jinja", template.encode())
    folder.run()
    assert folder.outcomes["refused"] == 1
