"""Phi-3-vision in torch, written from the published processing, with the names of published checkpoints."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM, CLIPVisionConfig, CLIPVisionModel
from transformers import Phi3Config as TextConfig
from transformers import Phi3ForCausalLM as TextModel

TILE = 336
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


class Phi3VConfig(TextConfig):
    model_type = "phi3_v"


class ImageEmbedding(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        tower = CLIPVisionConfig(**c.vision_config, attn_implementation="eager")
        size = 4 * tower.hidden_size
        self.img_processor = nn.ModuleDict({"vision_model": CLIPVisionModel(tower)})
        self.glb_GN = nn.Parameter(torch.zeros(1, 1, size))
        self.sub_GN = nn.Parameter(torch.zeros(1, 1, 1, size))
        products = nn.Linear(size, c.hidden_size), nn.Linear(c.hidden_size, c.hidden_size)
        self.img_projection = nn.Sequential(products[0], nn.GELU(), products[1])

    def grid(self, pixels: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
        """Join squares of 2 x 2 patches and append a separator to each row, for n squares each way in a tile: [rows
        columns, 3, H, W] -> [rows n (columns n + 1), 4 E]."""
        x = self.img_processor["vision_model"](pixels, output_hidden_states=True).hidden_states[-2][:, 1:]
        n = int(x.shape[1] ** 0.5) // 2
        x = x.view(rows, columns, n, 2, n, 2, -1).permute(0, 2, 1, 4, 3, 5, 6).reshape(rows * n, columns * n, -1)
        return torch.cat([x, self.sub_GN[0].expand(rows * n, 1, -1)], dim=1).flatten(0, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Pixels [3, H, W] in whole tiles -> [T, D]"""
        rows, columns = (edge // TILE for edge in image.shape[1:])
        tiles = image.view(3, rows, TILE, columns, TILE).permute(1, 3, 0, 2, 4).flatten(0, 1)
        whole = F.interpolate(image[None], size=(TILE, TILE), mode="bicubic")
        parts = [self.grid(tiles, rows, columns), self.glb_GN[0], self.grid(whole, 1, 1)]
        return self.img_projection(torch.cat(parts))


class Phi3VForCausalLM(TextModel):
    config_class = Phi3VConfig

    def __init__(self, c: Any):
        super().__init__(c)
        self.model.vision_embed_tokens = ImageEmbedding(c)

    def with_image(self, before: list[int], image: torch.Tensor, after: list[int]) -> torch.Tensor:
        """Logits [tokens, V] of a text with an image, pixels [3, H, W]."""
        texts = [self.model.embed_tokens(torch.tensor(ids)) for ids in (before, after)]
        x = torch.cat([texts[0], self.model.vision_embed_tokens(image), texts[1]])
        return self(inputs_embeds=x[None], use_cache=False).logits[0]


def pixels(image: Image.Image, max_tiles: int) -> torch.Tensor:
    """Float32 [3, H, W], H and W multiples of a tile."""
    is_high = image.height > image.width
    image = image.transpose(Image.Transpose.TRANSPOSE) if is_high else image
    ratio, columns = image.width / image.height, 1
    while (columns + 1) * np.ceil((columns + 1) / ratio) <= max_tiles:
        columns += 1
    width = columns * TILE
    image = image.resize((width, int(width / ratio)), Image.Resampling.BILINEAR)
    height = int(np.ceil(image.height / TILE) * TILE)
    padded = Image.new("RGB", (width, height), (255, 255, 255))
    padded.paste(image, (0, (height - image.height) // 2))
    padded = padded.transpose(Image.Transpose.TRANSPOSE) if is_high else padded
    values = torch.from_numpy(np.array(padded)).permute(2, 0, 1).float() / 255
    return (values - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]


AutoConfig.register("phi3_v", Phi3VConfig)
AutoModelForCausalLM.register(Phi3VConfig, Phi3VForCausalLM)
