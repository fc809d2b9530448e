"""Import small models of transformers' classes with random weights, and compare their first outputs with PyTorch's.

    python benchmarks/imported_classes.py [CLASS...]

Writes benchmarks/results/imported_classes.json: by class, the maximum |difference| over the greatest |output|, or why
it is refused. Classes that are not named keep their results. A few minutes for all.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import nn

from mlc_cli import console
from mlc_compiler.frontend.torch import from_exported_program
from mlc_errors import MLCError

RESULTS = Path(__file__).resolve().parent / "results" / "imported_classes.json"
VOCAB = 99
SMALL: dict[str, Any] = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}
WORDS = {"vocab_size": VOCAB, **SMALL}
PATCHES = {"image_size": 32, "patch_size": 8, **SMALL}
STAGES: dict[str, Any] = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}
WINDOWS = {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
SPEECH = {
    **SMALL,
    "conv_dim": (8, 8),
    "conv_stride": (5, 2),
    "conv_kernel": (10, 3),
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
    "num_feat_extract_layers": 2,
}
Inputs = dict[str, torch.Tensor]


def image(size: int = 32) -> Inputs:
    return {"pixel_values": torch.randn(1, 3, size, size)}


def large_image() -> Inputs:
    return image(64)


def text() -> Inputs:
    return {"input_ids": torch.randint(1, VOCAB, (1, 9)), "attention_mask": torch.ones(1, 9, dtype=torch.long)}


def numbers(name: str, *shape: int) -> Callable[[], Inputs]:
    return lambda: {name: torch.randn(shape)}


CLASSES: dict[str, tuple[dict[str, Any], Callable[[], Inputs]]] = {
    "ASTModel": ({**SMALL, "max_length": 64, "num_mel_bins": 32}, numbers("input_values", 1, 64, 32)),
    "AlbertModel": ({**WORDS, "embedding_size": 16}, text),
    "BeitModel": ({**PATCHES, "use_relative_position_bias": True}, image),
    "CLIPTextModel": (WORDS, text),
    "CLIPVisionModel": (PATCHES, image),
    "ConvNextModel": (STAGES, image),
    "ConvNextV2Model": (STAGES, image),
    "DPTModel": ({**PATCHES, "backbone_out_indices": [0, 0, 1, 1]}, image),
    "DebertaV2Model": ({**WORDS, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}, text),
    "DeiTModel": (PATCHES, image),
    "Dinov2Model": (PATCHES, image),
    "DistilBertModel": ({"vocab_size": VOCAB, "dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 40}, text),
    "ElectraModel": ({**WORDS, "embedding_size": 16}, text),
    "FNetModel": (WORDS, lambda: {"input_ids": text()["input_ids"]}),
    "FunnelBaseModel": (
        {"vocab_size": VOCAB, "d_model": 24, "block_sizes": [1, 1], "n_head": 3, "d_head": 8, "d_inner": 40},
        text,
    ),
    "GPT2Model": ({"vocab_size": VOCAB, "n_embd": 24, "n_layer": 2, "n_head": 3, "use_cache": False}, text),
    "HieraModel": (
        {
            "image_size": [32, 32],
            "patch_size": [3, 3],
            "patch_stride": [2, 2],
            "patch_padding": [1, 1],
            "embed_dim": 8,
            "depths": [1, 1],
            "num_heads": [1, 2],
            "masked_unit_size": [4, 4],
            "query_stride": [2, 2],
            "num_query_pool": 1,
        },
        image,
    ),
    "HubertModel": (SPEECH, numbers("input_values", 1, 400)),
    "LevitModel": (
        {
            "image_size": 64,
            "hidden_sizes": [16, 24, 32],
            "num_attention_heads": [2, 3, 4],
            "depths": [1, 1, 1],
            "key_dim": [8, 8, 8],
        },
        large_image,
    ),
    "LlamaModel": ({**WORDS, "num_key_value_heads": 1, "use_cache": False}, text),
    "MPNetModel": (WORDS, text),
    "MobileNetV2Model": ({"depth_multiplier": 0.35, "image_size": 32}, image),
    "MobileViTModel": (
        {
            "image_size": 32,
            "patch_size": 2,
            "hidden_sizes": [24, 32, 40],
            "neck_hidden_sizes": [8, 8, 16, 24, 32, 40, 48],
            "num_attention_heads": 2,
        },
        large_image,
    ),
    "PatchTSTModel": (
        {
            "context_length": 32,
            "patch_length": 4,
            "num_input_channels": 2,
            "d_model": 16,
            "num_attention_heads": 2,
            "ffn_dim": 32,
            "num_hidden_layers": 2,
        },
        numbers("past_values", 1, 32, 2),
    ),
    "PerceiverModel": (
        {
            "num_latents": 8,
            "d_latents": 16,
            "d_model": 12,
            "num_blocks": 1,
            "num_self_attends_per_block": 1,
            "num_self_attention_heads": 2,
            "num_cross_attention_heads": 2,
        },
        numbers("inputs", 1, 9, 12),
    ),
    "PoolFormerModel": (STAGES, large_image),
    "PvtModel": ({"image_size": 64, **STAGES, "num_attention_heads": [1, 2, 2, 4]}, large_image),
    "RegNetModel": ({"embedding_size": 8, **STAGES, "groups_width": 8}, image),
    "ResNetModel": ({"embedding_size": 8, **STAGES}, image),
    "RobertaModel": (WORDS, text),
    "SegformerModel": ({**STAGES, "num_attention_heads": [1, 2, 2, 4]}, large_image),
    "SiglipVisionModel": (PATCHES, image),
    "SwinModel": (WINDOWS, image),
    "Swinv2Model": (WINDOWS, image),
    "T5EncoderModel": (
        {"vocab_size": VOCAB, "d_model": 24, "num_layers": 2, "num_heads": 3, "d_kv": 8, "d_ff": 40},
        text,
    ),
    "VitDetModel": ({"image_size": 32, "patch_size": 8, "hidden_size": 24, "num_attention_heads": 3}, image),
    "Wav2Vec2Model": (SPEECH, numbers("input_values", 1, 400)),
    "XLNetModel": ({"vocab_size": VOCAB, "d_model": 24, "n_layer": 2, "n_head": 3, "d_inner": 40}, text),
    "YolosModel": ({**PATCHES, "image_size": [32, 32], "num_detection_tokens": 5}, image),
}


class FirstOutput(nn.Module):
    """A model's first output, of inputs by position."""

    def __init__(self, model: nn.Module, names: list[str]):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.model(**dict(zip(self.names, inputs, strict=True)))[0]


def randomized(model: nn.Module) -> nn.Module:
    """The model with weights by Glorot and Bengio (2010): some classes start with weights of almost 0."""
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.xavier_normal_(parameter)
        else:
            nn.init.normal_(parameter, parameter.mean().item(), 0.1)
    return model


def error_of(name: str) -> float:
    """The relative error of a class. Raises MLCError where the import or the compilation is refused."""
    options, make_inputs = CLASSES[name]
    torch.manual_seed(0)
    model = getattr(transformers, name)
    inputs = make_inputs()
    module = FirstOutput(randomized(model(model.config_class(**options))).eval(), list(inputs))
    with torch.no_grad():
        expected = module(*inputs.values()).numpy()
        program = torch.export.export(module, tuple(inputs.values()))
    got = np.asarray(from_exported_program(program).jit()["main"](*inputs.values()))
    return float(np.abs(got - expected).max() / np.abs(expected).max())


def main(names: list[str]) -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    results: dict[str, float | str] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in names or CLASSES:
        try:
            results[name] = error_of(name)
        except MLCError as refusal:
            results[name] = refusal.message
        print(f"{name}: {results[name]}", flush=True)
        RESULTS.write_text(console.to_json(dict(sorted(results.items()))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
