"""Image preprocessing from a checkpoint's settings, against transformers' own processors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

from mlc_errors import MLCError
from mlc_runtime.image_processor import image_processor
from mlc_runtime.image_views import View
from mlc_toolchain.image_settings import FILE, JOINT_FILE, image_settings
from mlc_toolchain.source import FolderSource
from tests.model_zoo import phi3_v_reference

SMALL = {"size": {"height": 30, "width": 26}}
CASES = [
    (CLIPImageProcessorPil, {"size": {"shortest_edge": 28}, "crop_size": {"height": 28, "width": 24}}),
    (CLIPImageProcessorPil, {}),
    (LlavaImageProcessorPil, {"size": {"shortest_edge": 28}, "crop_size": 28, "do_pad": True}),
    (SiglipImageProcessorPil, {**SMALL, "image_mean": [0.1, 0.2, 0.3]}),
    (SiglipImageProcessorPil, {**SMALL, "do_normalize": False, "do_rescale": False, "resample": 2}),
    (Gemma3ImageProcessorPil, SMALL),
    (Idefics3ImageProcessorPil, {"size": {"longest_edge": 50}, "max_image_size": {"longest_edge": 20}}),
    (Idefics3ImageProcessorPil, {"size": {"longest_edge": 50}, "max_image_size": {"longest_edge": 64}}),
    (
        SmolVLMImageProcessorPil,
        {"size": {"longest_edge": 50}, "max_image_size": {"longest_edge": 20}, "do_image_splitting": False},
    ),
]
RNG = np.random.default_rng(2)
IMAGES = [RNG.integers(0, 256, size, np.uint8) for size in ((40, 61, 3), (75, 33, 3), (20, 20, 3))]


def written(folder: Path, settings: dict[str, Any], name: str = FILE) -> FolderSource:
    (folder / name).write_text(json.dumps(settings))
    return FolderSource(folder)


@pytest.mark.parametrize(("kind", "options"), CASES)
def test_pixels_are_those_of_transformers(kind: Any, options: dict[str, Any], tmp_path: Path) -> None:
    processor = kind(**options)
    processor.save_pretrained(tmp_path)
    settings = image_settings(FolderSource(tmp_path))
    assert settings is not None
    ours = image_processor(json.loads(json.dumps(settings)), max_tokens=1000)
    for image in IMAGES:
        expected = processor(Image.fromarray(image), return_tensors="np")["pixel_values"]
        views = ours.views(image)
        pixels = np.concatenate([view.inputs["pixel_values"] for view in views.views])
        np.testing.assert_allclose(pixels.ravel(), expected.ravel(), atol=1e-6)
        assert len(views.views) == views.rows * views.columns + 1


@pytest.mark.parametrize("pixels", [{}, {"size": {"shortest_edge": 900, "longest_edge": 1900}, "patch_size": 7}])
def test_patches_are_those_of_transformers(pixels: dict[str, Any], tmp_path: Path) -> None:
    processor = Qwen2VLImageProcessorPil(**pixels)
    processor.save_pretrained(tmp_path)
    ours = image_processor(image_settings(FolderSource(tmp_path)) or {}, max_tokens=1000)
    for image in IMAGES:
        expected = processor(Image.fromarray(image), return_tensors="np")
        (view,) = ours.views(image).views
        np.testing.assert_allclose(view.inputs["pixel_values"].ravel(), expected["pixel_values"].ravel(), atol=1e-6)
        assert [2 * size for size in view.grid or ()] == expected["image_grid_thw"][0, 1:].tolist()


@pytest.mark.parametrize("size", [(40, 61), (75, 33), (20, 20), (4, 300), (300, 4)])
def test_patches_that_fill_an_area(size: tuple[int, int], tmp_path: Path) -> None:
    processor = Gemma4ImageProcessorPil(patch_size=2, max_soft_tokens=70)
    processor.save_pretrained(tmp_path)
    ours = image_processor(image_settings(FolderSource(tmp_path)) or {}, max_tokens=1000)
    image = RNG.integers(0, 256, (*size, 3), np.uint8)
    expected = processor(Image.fromarray(image), return_tensors="np")
    (view,) = ours.views(image).views
    rows, columns = view.grid or (0, 0)
    assert rows * columns == expected["num_soft_tokens_per_image"][0]
    column, row = expected["image_position_ids"][0, : 9 * rows * columns].T
    pixels = expected["pixel_values"][0, : 9 * rows * columns].reshape(-1, 2, 2, 3)
    np.testing.assert_allclose(_patches(_pixels(view, 2), 2)[row, column], pixels, atol=1e-6)


def _patches(pixels: np.ndarray, side: int) -> np.ndarray:
    """Split pixels [H, W, 3] into patches, float32 [rows, columns, side, side, 3]."""
    height, width, _ = pixels.shape
    return pixels.reshape(height // side, side, width // side, side, 3).swapaxes(1, 2)


@pytest.mark.parametrize(
    ("size", "enlarged", "tiles", "fitted"),
    [
        ((40, 60), False, (2, 3), (40, 60)),
        ((18, 27), False, (1, 2), (18, 27)),  # larger than one tile, and not enlarged
        ((18, 27), True, (2, 3), (40, 60)),
        ((9, 13), False, (1, 1), (13, 20)),  # as large as one tile
        ((75, 33), False, (3, 2), (60, 26)),
    ],
)
def test_tiles_of_the_canvas_that_fits_best(
    size: tuple[int, int], enlarged: bool, tiles: tuple[int, int], fitted: tuple[int, int], tmp_path: Path
) -> None:
    """A white image at the top left of a black canvas, and as a whole where there are several tiles."""
    settings = {"size": {"height": 20, "width": 20}, "max_patches": 6, "resize_to_max_canvas": enlarged}
    source = written(tmp_path, {"image_processor_type": "Llama4ImageProcessorFast", **settings})
    views = image_processor(image_settings(source) or {}, max_tokens=1000).views(np.full((*size, 3), 255, np.uint8))
    rows, columns = tiles
    assert (views.rows or 1, views.columns or 1) == tiles
    parts = [view.inputs["pixel_values"][0] for view in views.views]
    if rows * columns > 1:
        assert (parts.pop() == 1).all()
    bands = [np.concatenate(parts[i : i + columns], axis=2) for i in range(0, len(parts), columns)]
    expected = np.full((3, 20 * rows, 20 * columns), -1.0)
    expected[:, : fitted[0], : fitted[1]] = 1
    np.testing.assert_allclose(np.concatenate(bands, axis=1), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("size", "tiles", "patches"),
    [
        ((96, 128), (2, 3), (6, 8)),
        ((128, 128), (2, 2), (8, 8)),
        ((125, 41), (3, 1), (12, 4)),
        ((250, 62), (4, 1), (16, 2)),
        ((75, 100), (2, 3), (6, 8)),  # 2 x 2 fit its proportions as well
        ((8, 8), (0, 0), (4, 4)),
        ((2, 112), (0, 0), (2, 28)),
    ],
)
def test_tiles_of_patches(
    size: tuple[int, int], tiles: tuple[int, int], patches: tuple[int, int], tmp_path: Path
) -> None:
    """Of LFM2-VL, whose processor needs torchvision: its results for these sizes, and its resampling.

    patches: rows and columns of those of the whole image.
    """
    settings: dict[str, Any] = {"encoder_patch_size": 4, "tile_size": 32, "max_tiles": 6, "max_pixels_tolerance": 1.5}
    settings |= {"min_image_tokens": 4, "max_image_tokens": 16, "image_processor_type": "Lfm2VlImageProcessorFast"}
    processor = image_processor(image_settings(written(tmp_path, settings)) or {}, max_tokens=1000)
    image = np.random.default_rng(3).integers(0, 256, (*size, 3), np.uint8)
    views = processor.views(image)
    assert (views.rows, views.columns, len(views.views)) == (*tiles, tiles[0] * tiles[1] + 1)
    *parts, whole = (_pixels(view, 4) for view in views.views)
    assert whole.shape == (4 * patches[0], 4 * patches[1], 3)
    _close_to_resized(whole, image)
    if parts:
        rows = [np.concatenate(parts[i : i + tiles[1]], axis=1) for i in range(0, len(parts), tiles[1])]
        _close_to_resized(np.concatenate(rows), image)


def _close_to_resized(pixels: np.ndarray, image: np.ndarray) -> None:
    """Assert that pixels are within one of 255 levels of a resized image: Pillow rounds between its two passes, PyTorch
    does not."""
    planes = torch.from_numpy(image).permute(2, 0, 1)[None]
    resized = torch.nn.functional.interpolate(planes, pixels.shape[:2], mode="bilinear", antialias=True)[0]
    np.testing.assert_allclose(pixels, resized.permute(1, 2, 0).numpy() / 127.5 - 1, atol=1.01 / 127.5)


def _pixels(view: View, side: int) -> np.ndarray:
    """Reassemble the pixels that patches were made of, float32 [H, W, 3]."""
    rows, columns = view.inputs["patch_pos"].max(axis=(0, 1)) + 1
    result = np.empty((rows, columns, 3, side, side), np.float32)
    result[tuple(view.inputs["patch_pos"].reshape(-1, 2).T)] = view.inputs["pixel_values"].reshape(-1, 3, side, side)
    return result.transpose(0, 3, 1, 4, 2).reshape(rows * side, columns * side, 3)


def test_an_image_that_is_not_divided(tmp_path: Path) -> None:
    source = written(tmp_path, {"image_processor_type": "Lfm2VlImageProcessor", "do_image_splitting": False})
    views = image_processor(image_settings(source) or {}, max_tokens=1000).views(np.zeros((768, 1024, 3), np.uint8))
    assert [view.grid for view in views.views] == [(13, 18)]


def test_rows_of_tiles_are_those_of_the_published_processor(tmp_path: Path) -> None:
    tiles = 7
    source = written(tmp_path, {"image_processor_type": "Phi3VImageProcessor", "num_crops": tiles})
    ours = image_processor(image_settings(source) or {}, max_tokens=1000)
    for image in IMAGES:
        expected = phi3_v_reference.pixels(Image.fromarray(image), tiles)
        views = ours.views(image)
        *parts, whole = (view.inputs["pixel_values"][0] for view in views.views)
        rows = [np.concatenate(parts[i : i + views.columns], axis=2) for i in range(0, len(parts), views.columns)]
        np.testing.assert_allclose(np.concatenate(rows, axis=1), expected.numpy(), atol=1e-6)
        shrunk = torch.nn.functional.interpolate(expected[None], size=whole.shape[1:], mode="bicubic")[0]
        np.testing.assert_allclose(whole, shrunk.numpy(), atol=1e-5)


def test_settings_in_the_file_of_a_joint_processor(tmp_path: Path) -> None:
    assert image_settings(FolderSource(tmp_path)) is None
    source = written(
        tmp_path, {"image_processor": {"image_processor_type": "CLIPImageProcessor", "size": 9}}, JOINT_FILE
    )
    assert (image_settings(source) or {})["resize"] == 9


def test_settings_beside_those_of_sound(tmp_path: Path) -> None:
    """As Gemma 3n's file has them."""
    sound = {"feature_extractor_type": "Gemma3nAudioFeatureExtractor", "feature_size": 128, "padding_side": "right"}
    image = {"do_normalize": False, "do_center_crop": None, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    size = {"image_processor_type": "SiglipImageProcessorFast", "size": {"height": 768, "width": 768}, "resample": 2}
    assert image_settings(written(tmp_path, {**sound, **image, **size})) == {
        "kind": "whole",
        "pad_to_square": None,
        "resize": [768, 768],
        "crop": None,
        "resample": "bilinear",
        "scale": 1 / 255,
        "mean": [0.0] * 3,
        "std": [1.0] * 3,
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"image_processor_type": "OtherProcessor"},
            "image_processor_type: got 'OtherProcessor'; expected one of",
        ),
        ({"image_processor_type": "Gemma3ImageProcessorFast", "do_pan_and_scan": True}, "do_pan_and_scan: got true"),
        ({"size": {"longest_edge": 3}}, "the image settings are malformed: KeyError: 'height'"),
        (
            {"image_processor_type": "SmolVLMImageProcessor", "do_resize": False},
            "the image settings are malformed: ValueError: do_resize is false",
        ),
        (
            {"image_processor_type": "Phi3VImageProcessor", "num_crops": 0},
            "max_tiles is 0; expected positive numbers",
        ),
        (
            {"image_processor_type": "Lfm2VlImageProcessor", "use_thumbnail": False},
            "use_thumbnail is false; expected true",
        ),
        (
            {"image_processor_type": "Lfm2VlImageProcessor", "tile_size": 500},
            "tile is 500; expected a multiple of 32 of at most 1024 tokens",
        ),
        (
            {"image_processor_type": "Lfm2VlImageProcessor", "min_tiles": 1},
            "tiles are 1 to 10; expected at least 2",
        ),
        ({"resample": 77}, "the image settings are malformed: IndexError"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(MLCError, match=message) as error:
        image_settings(written(tmp_path, settings))
    assert str(tmp_path / FILE) in error.value.where[0]
