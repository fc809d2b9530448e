"""Convert preprocessor_config.json or processor_config.json to the image settings of mlc-chat-config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mlc_errors import MLCError, UnsupportedError
from mlc_runtime.image_processor import image_processor
from mlc_runtime.image_views import RESAMPLING
from mlc_toolchain.readers.bounded_json import read_json_object
from mlc_toolchain.source import ModelSource
from model_zoo.vision import MAX_IMAGE_TOKENS

FILE, JOINT_FILE, JOINT_KEY = "preprocessor_config.json", "processor_config.json", "image_processor"
CLIP = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "size": {"shortest_edge": 224},
    "crop_size": {"height": 224, "width": 224},
    "do_center_crop": True,
    "resample": RESAMPLING.index("bicubic"),
}
HALVES = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "size": {"height": 224, "width": 224}}
PHI3_TILE = 336  # pixels; the only size that Phi-3's processor supports
TILED = ("Idefics3ImageProcessor", "SmolVLMImageProcessor")
PROCESSORS: Mapping[str, Mapping[str, Any]] = {
    "CLIPImageProcessor": CLIP,
    "LlavaImageProcessor": CLIP,
    "SiglipImageProcessor": {**HALVES, "resample": RESAMPLING.index("bicubic")},
    "Gemma3ImageProcessor": {**HALVES, "resample": RESAMPLING.index("bilinear")},
    "Gemma4ImageProcessor": {
        "do_normalize": False,
        "image_mean": [0.0] * 3,
        "image_std": [1.0] * 3,
        "resample": RESAMPLING.index("bicubic"),
        "patch_size": 16,
        "pooling_kernel_size": 3,
        "max_soft_tokens": 280,
    },
    **{
        name: {
            **HALVES,
            "size": {"longest_edge": 4 * 364},
            "max_image_size": {"longest_edge": 364},
            "resample": RESAMPLING.index("lanczos"),
        }
        for name in TILED
    },
    "Phi3VImageProcessor": {**CLIP, "num_crops": 1, "resample": RESAMPLING.index("bilinear")},
    "Llama4ImageProcessor": {
        **HALVES,
        "size": {"height": 336, "width": 336},
        "resample": RESAMPLING.index("bilinear"),
        "max_patches": 16,
        "resize_to_max_canvas": False,
    },
    "Lfm2VlImageProcessor": {
        **HALVES,
        "resample": RESAMPLING.index("bilinear"),
        "encoder_patch_size": 16,
        "downsample_factor": 2,
        "min_image_tokens": 64,
        "max_image_tokens": 256,
        "tile_size": 512,
        "min_tiles": 2,
        "max_tiles": 10,
        "max_pixels_tolerance": 2.0,
    },
    "PixtralImageProcessor": {**CLIP, "size": {"longest_edge": 1024}, "patch_size": 16, "spatial_merge_size": 1},
    "Qwen2VLImageProcessor": {**CLIP, "size": {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280}},
}
"""Default values of keys, by image_processor_type."""


def image_settings(source: ModelSource) -> dict[str, Any] | None:
    """The entry ``image_processor``; None if the checkpoint has no such file.

    Raises UnsupportedError for unknown kinds of processors and for options that are not implemented.
    """
    found = _file(source)
    if found is None:
        return None
    raw, where = found
    kind = str(raw.get("image_processor_type", "CLIPImageProcessor")).removesuffix("Fast").removesuffix("Pil")
    if kind not in PROCESSORS:
        raise UnsupportedError(
            f"image_processor_type: got {kind[:80]!r}; expected one of {', '.join(PROCESSORS)}", where=[where]
        )
    if raw.get("do_pan_and_scan"):
        raise UnsupportedError("do_pan_and_scan: got true; images are taken as a whole", where=[where])
    try:
        given = {**raw, **_joint_keys(source, PROCESSORS[kind])}
        values = {**PROCESSORS[kind], **{k: v for k, v in given.items() if v is not None}}
        settings = {**_STEPS.get(kind, _whole)(values), **_common(values)}
        image_processor(settings, max_tokens=MAX_IMAGE_TOKENS)
    except MLCError as e:
        raise MLCError(e.message, where=[where]) from None
    except (KeyError, TypeError, ValueError, IndexError) as e:
        raise MLCError(f"the image settings are malformed: {type(e).__name__}: {e}", where=[where]) from None
    return settings


def _file(source: ModelSource) -> tuple[Mapping[str, Any], str] | None:
    path = source.file(FILE)
    if path is not None:
        return read_json_object(path), str(path)
    path = source.file(JOINT_FILE)
    if path is None:
        return None
    nested = read_json_object(path).get(JOINT_KEY)
    return (nested, str(path)) if isinstance(nested, Mapping) else None


def _joint_keys(source: ModelSource, known: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes among ``known`` that processor_config.json sets; they override the image processor's file."""
    path = source.file(JOINT_FILE)
    joint = read_json_object(path) if path else {}
    return {key: joint[key] for key in ("patch_size", "spatial_merge_size") if key in joint and key in known}


def _whole(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings for whole images, without the steps that a ``do_`` key disables."""

    def step(name: str, value: Callable[[], Any], default: bool = True) -> Any:
        return value() if values.get(name, default) else None

    return {
        "kind": "whole",
        "pad_to_square": step("do_pad", lambda: [int(255 * m) for m in values["image_mean"]], default=False),
        "resize": step("do_resize", lambda: _size(values["size"])),
        "crop": step("do_center_crop", lambda: _height_width(values["crop_size"]), default=False),
    }


def _tiles(values: Mapping[str, Any]) -> dict[str, Any]:
    if not values.get("do_resize", True):
        raise ValueError("do_resize is false; expected true")
    return {
        "kind": "tiles",
        "longest_edge": int(values["size"]["longest_edge"]),
        "tile": int(values["max_image_size"]["longest_edge"]),
        "divided": bool(values.get("do_image_splitting", True)),
    }


def _fitted_tiles(values: Mapping[str, Any]) -> dict[str, Any]:
    if not values.get("do_resize", True):
        raise ValueError("do_resize is false; expected true")
    height, width = _height_width(values["size"])
    if height != width:
        raise ValueError(f"size is {height} x {width}; expected a square")
    enlarged = bool(values["resize_to_max_canvas"])
    return {"kind": "fitted_tiles", "tile": height, "max_tiles": int(values["max_patches"]), "enlarged": enlarged}


def _wide_tiles(values: Mapping[str, Any]) -> dict[str, Any]:
    return {"kind": "wide_tiles", "tile": PHI3_TILE, "max_tiles": int(values["num_crops"])}


def _patches(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings for patches; ``size`` gives numbers of pixels."""
    if not values.get("do_resize", True):
        raise ValueError("do_resize is false; expected true")
    return {
        "kind": "patches",
        "patch": int(values.get("patch_size", 14)),
        "merge": int(values.get("merge_size", 2)),
        "frames": int(values.get("temporal_patch_size", 2)),
        "min_pixels": int(values.get("min_pixels") or values["size"]["shortest_edge"]),
        "max_pixels": int(values.get("max_pixels") or values["size"]["longest_edge"]),
    }


def _tiled_patches(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings for tiles of patches; without splitting, the image as a whole in patches only."""
    for key in ("do_resize", "use_thumbnail"):
        if not values.get(key, True):
            raise ValueError(f"{key} is false; expected true")
    patch, merge = int(values["encoder_patch_size"]), int(values["downsample_factor"])
    least, most = (int(values[f"{name}_image_tokens"]) * (patch * merge) ** 2 for name in ("min", "max"))
    is_divided = values.get("do_image_splitting", True)
    return {
        "kind": "tiled_patches",
        "patch": patch,
        "merge": merge,
        "frames": 1,
        "min_pixels": least,
        "max_pixels": most,
        "tile": int(values["tile_size"]),
        "tiles": [int(values["min_tiles"]), int(values["max_tiles"])],
        "largest": most * float(values["max_pixels_tolerance"]) if is_divided else None,
    }


def _filled_patches(values: Mapping[str, Any]) -> dict[str, Any]:
    if not values.get("do_resize", True):
        raise ValueError("do_resize is false; expected true")
    patch, merge = int(values["patch_size"]), int(values["pooling_kernel_size"])
    filled = int(values["max_soft_tokens"]) * (patch * merge) ** 2
    return {"kind": "patches", "patch": patch, "merge": merge, "frames": 1, "filled_pixels": filled}


def _edge_patches(values: Mapping[str, Any]) -> dict[str, Any]:
    if not values.get("do_resize", True):
        raise ValueError("do_resize is false; expected true")
    height, width = _height_width(values["patch_size"])
    if height != width:
        raise ValueError(f"patch_size is {height} x {width}; expected a square")
    return {
        "kind": "patches",
        "patch": height,
        "merge": int(values["spatial_merge_size"]),
        "frames": 1,
        "longest_edge": int(values["size"]["longest_edge"]),
    }


def _common(values: Mapping[str, Any]) -> dict[str, Any]:
    normalized = values.get("do_normalize", True)
    return {
        "resample": RESAMPLING[int(values["resample"])],
        "scale": float(values.get("rescale_factor", 1 / 255)) if values.get("do_rescale", True) else 1.0,
        "mean": list(values["image_mean"]) if normalized else [0.0] * 3,
        "std": list(values["image_std"]) if normalized else [1.0] * 3,
    }


def _size(value: Any) -> int | list[int]:
    """Parse a size: the length of the shorter edge, or height and width."""
    if isinstance(value, Mapping) and set(value) == {"shortest_edge"}:
        return int(value["shortest_edge"])
    return int(value) if isinstance(value, int) else _height_width(value)


def _height_width(value: Any) -> list[int]:
    if isinstance(value, int):
        return [value, value]
    return [int(value["height"]), int(value["width"])]


_STEPS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    **dict.fromkeys(TILED, _tiles),
    "Gemma4ImageProcessor": _filled_patches,
    "Lfm2VlImageProcessor": _tiled_patches,
    "Llama4ImageProcessor": _fitted_tiles,
    "Phi3VImageProcessor": _wide_tiles,
    "PixtralImageProcessor": _edge_patches,
    "Qwen2VLImageProcessor": _patches,
}
