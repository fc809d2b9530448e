"""MobileNetV5, the image tower of Gemma 3n: convolutions, later with multi-query attention between them.

There is no paper; the reference is timm's ``mobilenetv5_300m_enc``, whose notation of blocks and names are used here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Self

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op
from mlc_compiler.nn.mobilenet import (
    Conv2d,
    ConvNorm,
    EdgeResidual,
    MobileAttention,
    MultiScaleFusion,
    UniversalInvertedResidual,
)
from mlc_errors import MLCError, UnsupportedError
from model_zoo.vision import TOWER, vision_values
from model_zoo.weight_map import WeightMap

KIND, ARCHITECTURE, CHANNELS, FUSED = "gemma3n_vision", "mobilenetv5_300m_enc", 3, 2
IGNORED = ("model_type", "do_pooling", "label_names", "num_classes", "problem_type")
MULTIPLE = 8  # of channels; timm rounds others
ATTENTION, WIDE_ATTENTION = "mqa_r1_k3_h12_v2_s1_d64_c640", "mqa_r1_k3_h16_s1_d96_c1280"
BLOCKS = (
    ("er_r1_k3_s2_e4_c128", *2 * ("er_r1_k3_s1_e4_c128",)),
    ("uir_r1_a3_k5_s2_e6_c256", *2 * ("uir_r1_a5_k0_s1_e4_c256", "uir_r1_a3_k0_s1_e4_c256")),
    (
        *("uir_r1_a5_k5_s2_e6_c640", *7 * ("uir_r1_a5_k0_s1_e4_c640",), "uir_r1_a0_k0_s1_e1_c640"),
        *14 * (ATTENTION, "uir_r1_a0_k0_s1_e2_c640"),
    ),
    ("uir_r1_a5_k5_s2_e6_c1280", *19 * (WIDE_ATTENTION, "uir_r1_a0_k0_s1_e2_c1280")),
)
SPELLED = re.compile(r"(?:er|uir|mqa)(?:_[a-z]\d+)+")
LETTERS = {"er": "rksec", "uir": "raksec", "mqa": "rkhvsdc"}


@dataclass(frozen=True, kw_only=True)
class MobileNetV5Config:
    """Field names are Hugging Face's keys, but image_size: height and width of an image, in pixels.

    hidden_size: elements of a token. vocab_offset, vocab_size: the first and the number of the ids of tokens that
    have embeddings of this size. model_args: of timm's ``create_model``; ``block_args`` has blocks as strings.
    """

    architecture: str = ARCHITECTURE
    hidden_size: int = 2048
    rms_norm_eps: float = 1e-6
    vocab_offset: int = 262144
    vocab_size: int = 128
    image_size: int = 768
    model_args: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.architecture != ARCHITECTURE:
            raise UnsupportedError(
                f"vision_config: architecture: got {self.architecture[:80]!r}; expected {ARCHITECTURE!r}",
                where=["config.json"],
            )
        if unknown := set(self.model_args or ()) - {"block_args", "stem_size", "msfa_output_resolution"}:
            raise UnsupportedError(f"vision_config: model_args: {sorted(unknown)[0][:80]!r} is not supported")
        if len(self.stages) < FUSED:
            raise _wrong("block_args", f"{len(self.stages)} stages", f"at least {FUSED}")
        for channels in (self.stem_size, *self.widths):
            if channels % MULTIPLE:
                raise _wrong("block_args", f"{channels} channels", f"a multiple of {MULTIPLE}")
        large, *small = self.sides[-FUSED:]
        if wrong := next((side for side in (*small, self.token_side) if large % side), None):
            raise _wrong("msfa_output_resolution", f"{large} places resized to {wrong}", "a divisor of them")

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """From the vision_config of config.json. Raises MLCError as ``DecoderConfig.from_hf``."""
        kind = raw.get("model_type", KIND)
        if kind != KIND:
            raise UnsupportedError(
                f"vision_config: got model_type {str(kind)[:80]!r}; expected {KIND}", where=["config.json"]
            )
        return cls(**vision_values(cls, KIND, raw, IGNORED))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of an image's pixels."""
        return 1, CHANNELS, self.image_size, self.image_size

    @property
    def stem_size(self) -> int:
        """Channels of the first convolution's result."""
        return self._argument("stem_size", 64)

    @property
    def token_side(self) -> int:
        """Tokens in a row of an image, and rows of tokens."""
        return self._argument("msfa_output_resolution", 16)

    @cached_property
    def stages(self) -> Sequence[Sequence[Block]]:
        given = (self.model_args or {}).get("block_args")
        return [[Block.parse(text) for text in stage] for stage in (BLOCKS if given is None else given)]

    @property
    def widths(self) -> list[int]:
        """Channels of each stage's result."""
        return [stage[-1]["c"] for stage in self.stages]

    @property
    def sides(self) -> list[int]:
        """Rows of each stage's result, as many as columns."""
        sides, side = [], -(-self.image_size // 2)
        for stage in self.stages:
            for block in stage:
                side = -(-side // block["s"])
            sides.append(side)
        return sides

    def _argument(self, name: str, default: int) -> int:
        value = (self.model_args or {}).get(name, default)
        if not isinstance(value, int) or value < 1:
            raise _wrong(name, repr(value)[:80], "a positive integer")
        return value


@dataclass(frozen=True)
class Block:
    """A block in timm's notation: er EdgeResidual, uir UniversalInvertedResidual, mqa MobileAttention.

    values: by letter. r repetitions, a and k windows of the first and the other convolution, s stride, e expansion,
    c channels of the result, h heads, d elements of a head, v stride of keys and values.
    """

    kind: str
    values: Mapping[str, int]

    @staticmethod
    def parse(text: Any) -> Block:
        """Raises MLCError for a text that is not of this notation."""
        if not isinstance(text, str) or not SPELLED.fullmatch(text):
            raise _wrong("block_args", repr(text)[:80], "blocks such as 'uir_r1_a5_k0_s1_e4_c640'")
        kind, *parts = text.split("_")
        values = {"r": 1, "v": 1, **{part[0]: int(part[1:]) for part in parts}}
        needed = set(LETTERS[kind]) | {"r", "v"}
        if set(values) != needed or values["r"] != 1 or values["s"] not in (1, 2):
            raise _wrong("block_args", repr(text)[:80], f"one value for each of {LETTERS[kind]}, r1, and s1 or s2")
        return Block(kind, values)

    def __getitem__(self, letter: str) -> int:
        return self.values[letter]

    def module(self, channels: int) -> nn.Module:
        """The block for an image of so many channels."""
        v = self.values
        if self.kind == "er":
            return EdgeResidual(channels, v["c"], v["k"], v["s"], v["e"])
        if self.kind == "uir":
            return UniversalInvertedResidual(channels, v["c"], v["e"], v["a"], v["k"], v["s"])
        return MobileAttention(channels, v["h"], v["d"], v["k"], v["v"])


class MobileNetV5(nn.Module):
    """Pixels [1, C, H, W] -> [1, T, E], the tokens of an image row by row."""

    def __init__(self, c: MobileNetV5Config):
        self.conv_stem = ConvNorm(Conv2d(CHANNELS, c.stem_size, 3, 2, bias=True), c.stem_size, activated=True)
        channels = [c.stem_size, *(block["c"] for block in chain.from_iterable(c.stages))]
        before = iter(channels)
        self.blocks = nn.ModuleList([nn.ModuleList([b.module(next(before)) for b in stage]) for stage in c.stages])
        self.msfa = MultiScaleFusion(sum(c.widths[-FUSED:]), c.hidden_size, c.token_side)

    def forward(self, pixels: Tensor) -> Tensor:
        x, results = self.conv_stem(op.permute_dims(pixels, (0, 2, 3, 1))), []
        for stage in self.blocks:
            x = stage(x)
            results.append(x)
        fused = self.msfa(results[-FUSED:])
        return op.reshape(fused, (1, fused.shape[1] * fused.shape[2], fused.shape[3]))


def tower_weights(m: WeightMap, c: MobileNetV5Config) -> None:
    """Products are convolutions with windows of one place in the checkpoint."""
    m.other_prefix(f"{TOWER}.", f"model.{TOWER}.timm_model.")
    for name, parameter in MobileNetV5(c).named_parameters():
        if len(parameter.shape) == 2:
            m.flatten(f"{TOWER}.{name}")


def _wrong(key: str, got: str, expected: str) -> MLCError:
    return MLCError(f"vision_config: model_args: {key}: got {got}; expected {expected}", where=["config.json"])


SMALL = {
    "model_type": KIND,
    "hidden_size": 52,
    "vocab_size": 11,
    "vocab_offset": 990,
    "image_size": 62,
    "model_args": {
        "stem_size": 8,
        "msfa_output_resolution": 2,
        "block_args": [
            ["er_r1_k3_s2_e4_c16", "er_r1_k3_s1_e2_c16"],
            [
                "uir_r1_a3_k5_s2_e3_c24",
                "uir_r1_a5_k0_s1_e2_c24",
                "mqa_r1_k3_h3_v2_s1_d12_c24",
                "uir_r1_a0_k0_s1_e1_c24",
            ],
            ["uir_r1_a5_k5_s2_e2_c40", "mqa_r1_k3_h2_s1_d20_c40", "uir_r1_a0_k0_s1_e2_c40"],
        ],
    },
}
