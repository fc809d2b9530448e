"""The fake compiled model with images: an image token counts as the greatest element of its embedding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.runtime.fake_library import HEAD_DIM, HIDDEN, FakeLibrary, byte_tokenizer, metadata, write_folder

VOCAB, TOKENS, IMAGE_TOKEN, PLACEHOLDER = 260, 3, 259, 258
SETTINGS = {
    "kind": "whole",
    "pad_to_square": None,
    "resize": None,
    "resample": "bicubic",
    "crop": None,
    "scale": 1.0,
    "mean": [0, 0, 0],
    "std": [1, 1, 1],
}


class FakeImages(FakeLibrary):
    def __init__(self, data: dict[str, Any]):
        super().__init__(data)
        self._code["image_embed"] = self._image_embed

    def _image_embed(self, ctx: int, pixels: np.ndarray, packed: np.ndarray, out: np.ndarray) -> None:
        out[...] = 0
        out[:, :HEAD_DIM] = pixels.max()


def with_images(context: int = 64) -> dict[str, Any]:
    data = metadata(VOCAB, context)
    pixels = {"name": "pixel_values", "shape": [1, 3, 2, 2], "dtype": "float32"}
    packed = data["functions"]["embed"]["inputs"][-1]
    embeddings = {"name": "embeddings", "shape": [TOKENS, HIDDEN], "dtype": "float32"}
    data["functions"]["image_embed"] = {"inputs": [pixels, packed], "outputs": [embeddings]}
    sizes = {"shape": [1, 3, 2, 2], "tokens": TOKENS}
    expansion = ["\n", PLACEHOLDER, IMAGE_TOKEN, "!"]
    ids = {
        "token_id": IMAGE_TOKEN,
        "placeholder_id": PLACEHOLDER,
        "expansion": expansion,
        "sees_itself": False,
        "tile": [],
        "row_tokens": 0,
    }
    return {**data, "image_input": {**sizes, **ids}}


def write_image_folder(folder: Path) -> Path:
    """The model's folder: a chat template with content parts, and the tokens <begin> and <image>."""
    write_folder(folder, VOCAB, image_processor=SETTINGS, eos_token_id=[])
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens(["<begin>", "<image>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    template = (
        "{% for m in messages %}[{{ m.role }}]{% for c in m.content %}"
        "{{ '<begin>' if c.type == 'image' else c.text }}{% endfor %}{% endfor %}"
    )
    (folder / "chat_template.jinja").write_text(template)
    return folder
