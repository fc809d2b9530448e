"""Imported models of PyTorch and transformers with random weights, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim
from transformers import BertConfig, BertModel, ViTConfig, ViTModel, WhisperConfig
from transformers.models.whisper.modeling_whisper import WhisperEncoder

from mlc_compiler import build
from mlc_compiler.frontend.torch import from_exported_program
from tests.compiler.frontend.imports import check, compare

SMALL = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}


class Residual(nn.Module):
    """A block of ResNet (He et al. 2015): two convolutions, and a third one on the shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, groups=2, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(torch.relu_(self.bn1(self.conv1(x)))))
        return torch.relu(y + self.shortcut(x))


def resnet() -> nn.Module:
    """Four convolutions, batch norms with statistics that are not 0 and 1, both kinds of pooling, a classifier."""
    stem = nn.Sequential(nn.Conv2d(3, 6, 5, 2, padding=2), nn.BatchNorm2d(6), nn.ReLU(inplace=True))
    pool = nn.MaxPool2d(3, 2, padding=1, ceil_mode=True)
    head = nn.Sequential(nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(10, 4))
    model = nn.Sequential(stem, pool, Residual(6, 10, 2), head)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
            nn.init.uniform_(module.weight, 0.5, 2.0)
    return model


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(5)


def test_resnet_of_any_batch():
    n = Dim("n", min=1, max=9)
    check(resnet(), torch.randn(2, 3, 21, 21), dynamic=({0: n},), others=[(torch.randn(3, 3, 21, 21),)])


def test_bert_of_any_length():
    s = Dim("s", min=2, max=32)
    model = BertModel(BertConfig(vocab_size=61, max_position_embeddings=32, **SMALL))

    def inputs(length: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randint(0, 61, (2, length)), (torch.arange(length) < torch.tensor([[length], [2]])).long()

    ids, mask = inputs(7)
    dynamic = {"input_ids": {1: s}, "attention_mask": {1: s}}
    imported = check(model, input_ids=ids, attention_mask=mask, dynamic=dynamic, others=[inputs(3), inputs(32)])
    assert list(imported.mod["main"].attrs["tir_var_upper_bound"].values()) == [32]


def test_vit():
    model = ViTModel(ViTConfig(image_size=12, patch_size=4, **SMALL))
    check(model, torch.randn(2, 3, 12, 12))


def test_whisper_encoder():
    sizes = {"d_model": 24, "encoder_layers": 2, "encoder_attention_heads": 3, "encoder_ffn_dim": 40}
    model = WhisperEncoder(WhisperConfig(num_mel_bins=10, max_source_positions=8, **sizes))
    check(model, torch.randn(1, 10, 16))


class Masked(nn.Module):
    """Attention with a mask of positions: all are visible up to ``limit`` tokens; and a table of positions."""

    def __init__(self, limit: int):
        super().__init__()
        self.limit = limit

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        at = torch.arange(x.shape[1]) + 1
        mask = (at <= self.limit)[None].expand(x.shape[1], -1)
        return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask) + torch.cos(at * 0.5)[:, None]


@pytest.mark.parametrize(("limit", "masked"), [(6, False), (4, True)])
def test_what_depends_on_no_input_is_computed_at_import(limit: int, masked: bool):
    model, x = Masked(limit).eval(), torch.randn(2, 6, 8)
    program = torch.export.export(model, (x,))
    mod = from_exported_program(program).mod
    text = mod.script()
    assert ("R.where(" in text) == masked
    assert not any(f"R.{name}(" in text for name in ("arange", "less_equal", "broadcast_to", "cos"))
    compare(build(mod)["main"](x), [model(x)], 1e-5)


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(12, 20), nn.Linear(20, 5, bias=False)
        self.register_buffer("scale", torch.rand(5), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.down(nn.functional.gelu(self.up(x))) * self.scale, -1) + torch.tensor(0.5)


def test_parameters_are_arguments_constants_or_held():
    model, x = Mlp().eval(), torch.randn(3, 12)
    program = torch.export.export(model, (x,))
    apart, bound = from_exported_program(program), from_exported_program(program, keep_params=False)
    assert list(apart.params) == ["up_weight", "up_bias", "down_weight", "scale"]
    assert [p.name for p in apart.mod["main"].params] == ["x", *apart.params]
    assert [p.name for p in bound.mod["main"].params] == ["x"] and not bound.params
    for result in (build(bound.mod)["main"](x), apart.jit(num_threads=1)["main"](x)):
        compare(result, [model(x)], 1e-5)
    doubled = {name: 2 * value for name, value in apart.params.items()}
    got = build(apart.mod)["main"](x, *doubled.values())
    assert not np.allclose(got, model(x).detach())
