"""The models of ``imported.py``, with random weights: their published sizes, batch 1."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from transformers import BertConfig, BertModel, ViTConfig, ViTModel, WhisperConfig
from transformers.models.whisper.modeling_whisper import WhisperEncoder

TOKENS = 128  # of BERT's input


class Residual(nn.Module):
    """Two convolutions with a shortcut connection (He et al. 2015, figure 5, left)."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.past: nn.Module = nn.Identity()
        if stride > 1:
            self.past = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + self.past(x))


def resnet18() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """ResNet-18 on an image of 224 x 224 (He et al. 2015, table 1)."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, padding=1))
    for inputs, outputs in ((64, 64), (64, 128), (128, 256), (256, 512)):
        layers += [Residual(inputs, outputs, outputs // inputs), Residual(outputs, outputs, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)), (
        torch.randn(1, 3, 224, 224),
    )


def vit() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """ViT-B/16 without a head, an image of 224 x 224."""
    return ViTModel(ViTConfig(), add_pooling_layer=False), (torch.randn(1, 3, 224, 224),)


def bert() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """BERT-base, one text of ``TOKENS`` tokens."""
    config = BertConfig()
    return BertModel(config, add_pooling_layer=False), (torch.randint(0, config.vocab_size, (1, TOKENS)),)


def whisper() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The encoder of Whisper-tiny, 30 seconds of sound."""
    config = WhisperConfig(d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536)
    return WhisperEncoder(config), (torch.randn(1, 80, 3000),)


MODELS: dict[str, Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]] = {
    "resnet-18": resnet18,
    "vit-b-16": vit,
    "bert-base": bert,
    "whisper-tiny": whisper,
}


class First(nn.Module):
    """Wraps a model and returns only its first result."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.model(x)
        return result if isinstance(result, torch.Tensor) else result[0]


def model_named(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A model in evaluation mode and its inputs, the same in every process."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    return First(model).eval(), inputs
