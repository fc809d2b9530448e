"""MobileNetV5 in torch with timm's names, and Gemma 3n with it, for which transformers needs timm.

``tests/data/mobilenetv5_timm.json`` has what timm computes; where it is installed, this writes the file again:
``python -m tests.model_zoo.mobilenetv5_reference``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import transformers
from torch import nn
from torch.nn import functional as F
from transformers.modeling_outputs import BaseModelOutputWithPooling

from model_zoo.mobilenetv5 import SMALL, Block, MobileNetV5Config

EXPECTED = Path(__file__).parents[1] / "data" / "mobilenetv5_timm.json"


class Conv(nn.Conv2d):
    """With TensorFlow's padding SAME."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, bias: bool = False):
        super().__init__(inputs, outputs, kernel, stride, groups=groups, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = zip(x.shape[:1:-1], self.kernel_size, self.stride, strict=True)
        zeros = [max((-(-size // stride) - 1) * stride + kernel - size, 0) for size, kernel, stride in steps]
        return super().forward(F.pad(x, [side for n in zeros for side in (n // 2, n - n // 2)]))


class Norm(nn.Module):
    def __init__(self, channels: int, activated: bool = False):
        super().__init__()
        self.weight, self.activated = nn.Parameter(torch.ones(channels)), activated

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-6) * self.weight[:, None, None]
        return F.gelu(y, approximate="tanh") if self.activated else y


class ConvNorm(nn.Sequential):
    def __init__(self, *sizes: int, activated: bool = False, **options: Any):
        super().__init__()
        self.add_module("conv", Conv(*sizes, **options))
        self.add_module("bn", Norm(sizes[1], activated))


class Scale(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gamma[:, None, None]


class Residual(nn.Sequential):
    """Adds its input where that has the result's shape."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        return x + y if x.shape == y.shape else y


def edge(inputs: int, v: Any) -> nn.Module:
    inner = inputs * v["e"]
    parts = {"conv_exp": Conv(inputs, inner, v["k"], v["s"]), "bn1": Norm(inner, True)}
    return named(Residual(), {**parts, "conv_pwl": Conv(inner, v["c"], 1), "bn2": Norm(v["c"])})


def inverted(inputs: int, v: Any, scaled: bool = True, kind: Any = Residual) -> nn.Module:
    inner, parts = inputs * v["e"], {}
    if v["a"]:
        parts["dw_start"] = ConvNorm(inputs, inputs, v["a"], 1 if v["k"] else v["s"], inputs)
    parts["pw_exp"] = ConvNorm(inputs, inner, 1, activated=True)
    if v["k"]:
        parts["dw_mid"] = ConvNorm(inner, inner, v["k"], v["s"], inner, activated=True)
    parts["pw_proj"] = ConvNorm(inner, v["c"], 1)
    return named(kind(), parts | ({"layer_scale": Scale(v["c"])} if scaled else {}))


class Attention(nn.Module):
    def __init__(self, channels: int, v: Any):
        super().__init__()
        self.size = v["d"]
        self.query = named(nn.Sequential(), {"proj": Conv(channels, v["h"] * v["d"], 1)})
        self.key, self.value = (
            named(
                nn.Sequential(),
                {"down_conv": Conv(channels, channels, v["k"], v["v"], channels), "norm": Norm(channels)}
                if v["v"] > 1
                else {},
            )
            for _ in range(2)
        )
        for part in (self.key, self.value):
            part.add_module("proj", Conv(channels, v["d"], 1))
        self.output = named(nn.Sequential(), {"proj": Conv(v["h"] * v["d"], channels, 1)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = self.query(x).unflatten(1, (-1, self.size)).flatten(3).mT
        k, v = (part(x).flatten(2).mT[:, None] for part in (self.key, self.value))
        out = torch.softmax(q @ k.mT / self.size**0.5, dim=-1) @ v
        return self.output(out.mT.flatten(1, 2).unflatten(2, x.shape[2:]))


def mobile_attention(channels: int, v: Any) -> nn.Module:
    parts = {"norm": Norm(channels), "attn": Attention(channels, v), "layer_scale": Scale(channels)}
    return named(Residual(), parts)


def named(sequence: nn.Sequential, parts: dict[str, nn.Module]) -> Any:
    for name, part in parts.items():
        sequence.add_module(name, part)
    return sequence


class Fusion(nn.Module):
    def __init__(self, inputs: int, outputs: int, side: int):
        super().__init__()
        self.side = side
        self.ffn = inverted(inputs, {"a": 0, "k": 0, "e": 2, "s": 1, "c": outputs}, False, nn.Sequential)
        self.norm = Norm(outputs)

    def forward(self, images: list[torch.Tensor]) -> torch.Tensor:
        size = images[0].shape[2:]
        x = self.ffn(torch.cat([F.interpolate(image, size=size) for image in images], dim=1))
        return self.norm(F.avg_pool2d(x, size[0] // self.side))


class Tower(nn.Module):
    """Pixels [N, 3, H, W] -> [N, E, side, side]"""

    def __init__(self, c: MobileNetV5Config):
        super().__init__()
        channels = c.stem_size
        self.conv_stem = ConvNorm(3, channels, 3, 2, bias=True, activated=True)
        self.blocks = nn.Sequential()
        for stage in c.stages:
            self.blocks.append(nn.Sequential(*[module(b, n) for b, n in zip(stage, widths(stage, channels))]))
            channels = stage[-1]["c"]
        self.msfa = Fusion(sum(c.widths[-2:]), c.hidden_size, c.token_side)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, results = self.conv_stem(x), []
        for stage in self.blocks:
            x = stage(x)
            results.append(x)
        return self.msfa(results[-2:])


def widths(stage: Any, channels: int) -> list[int]:
    """Channels before each block."""
    return [channels, *(block["c"] for block in stage[:-1])]


def module(block: Block, channels: int) -> nn.Module:
    kinds = {"er": edge, "uir": inverted, "mqa": mobile_attention}
    return kinds[block.kind](channels, block.values)


class VisionModel(nn.Module):
    """In the place of transformers' ``TimmWrapperModel``."""

    def __init__(self, c: Any):
        super().__init__()
        self.timm_model = Tower(MobileNetV5Config.from_hf(SMALL))

    def forward(self, pixel_values: torch.Tensor, **options: Any) -> BaseModelOutputWithPooling:
        return BaseModelOutputWithPooling(last_hidden_state=self.timm_model(pixel_values))


def with_tower(config: Any) -> transformers.PreTrainedModel:
    """transformers' ``Gemma3nForConditionalGeneration`` with the tower of this file, of ``SMALL``."""
    make = transformers.AutoModel.from_config

    def chosen(part: Any, **options: Any) -> nn.Module:
        return VisionModel(part) if part.model_type == SMALL["model_type"] else make(part, **options)

    with patch.object(transformers.AutoModel, "from_config", chosen):
        return transformers.Gemma3nForConditionalGeneration(config)


def weights_and_pixels(tower: nn.Module) -> torch.Tensor:
    """Give the tower weights, and return pixels; both are the same in every process."""
    rng = np.random.default_rng(11)
    for name, parameter in sorted(tower.named_parameters()):
        values = rng.standard_normal(parameter.shape) * 0.3 + (parameter.ndim == 1 and not name.endswith("bias"))
        parameter.data = torch.from_numpy(values.astype(np.float32))
    side = SMALL["image_size"]
    return torch.from_numpy(rng.standard_normal((1, 3, side, side), np.float32))


def write_expected() -> None:
    from timm.models._efficientnet_builder import decode_arch_def
    from timm.models.mobilenetv5 import _GELU, MobileNetV5, RmsNorm2d

    args = SMALL["model_args"]
    tower = MobileNetV5(
        decode_arch_def(args["block_args"]),
        num_classes=0,
        stem_size=args["stem_size"],
        num_features=SMALL["hidden_size"],
        pad_type="same",
        msfa_output_resolution=args["msfa_output_resolution"],
        act_layer=_GELU,
        norm_layer=RmsNorm2d,
        layer_scale_init_value=1e-5,
    )
    pixels = weights_and_pixels(tower.eval())
    with torch.no_grad():
        tokens = tower.forward_features(pixels)[0]
    names = {name: list(parameter.shape) for name, parameter in tower.named_parameters()}
    EXPECTED.write_text(json.dumps({"tokens": tokens.tolist(), "parameters": names}) + "\n")


if __name__ == "__main__":
    write_expected()
