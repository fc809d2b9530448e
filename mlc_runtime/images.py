"""Load images from files, bytes, data URLs, arrays or Pillow images as RGB arrays."""

from __future__ import annotations

import base64
import binascii
import io
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np

from mlc_errors import MLCError, UsageError
from mlc_files import read_limited

SHOWN = 80
MAX_BYTES = 256 << 20


def load_image(source: Any) -> np.ndarray:
    """Load an image as RGB, uint8 [H, W, 3]. Transparency is blended onto white; a file's EXIF orientation is applied.

    source: a path, a ``data:`` or ``file:`` URL, the bytes of a file, a Pillow image, or an array uint8 [H, W, 3].
    Raises UsageError for other types, MLCError for a file that cannot be read. Arrays do not need Pillow.
    """
    if isinstance(source, np.ndarray):
        if source.ndim != 3 or source.shape[2] != 3 or source.dtype != np.uint8 or not source.size:
            raise UsageError(f"an image is {source.dtype} {list(source.shape)}; expected uint8 [height, width, 3]")
        return source
    image_module, _ = import_pillow()
    if isinstance(source, image_module.Image):
        return _rgb(source)
    return _decoded(*_file(source))


def import_pillow() -> tuple[ModuleType, ModuleType]:
    """Pillow's modules ``Image`` and ``ImageOps``. Raises MLCError if Pillow is not installed."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise MLCError("images need the package Pillow, which is not installed", hint="pip install pillow") from None
    return Image, ImageOps


def _file(source: Any) -> tuple[bytes, str]:
    """The bytes of an image file, and its name for error messages."""
    if isinstance(source, bytes | bytearray):
        return bytes(source), "an image given as bytes"
    if not isinstance(source, str | Path):
        raise UsageError(f"an image is {type(source).__name__}; expected a path, a URL, bytes, or an array")
    text = str(source)
    if text.startswith("data:"):
        return _data_url(text), "an image given as a data URL"
    if text.startswith(("http://", "https://")):
        raise UsageError(f"an image is at {text[:SHOWN]}; images are not downloaded", hint="name a file or a data URL")
    path = Path(unquote(urlsplit(text).path)) if text.startswith("file:") else Path(text)
    try:
        return read_limited(path, MAX_BYTES), str(path)
    except (OSError, ValueError) as e:
        raise MLCError(f"cannot read the image {str(path)[:SHOWN]}: {getattr(e, 'strerror', e)}") from None


def _data_url(text: str) -> bytes:
    head, comma, data = text.partition(",")
    try:
        if not comma or not head.endswith(";base64"):
            raise ValueError
        return base64.b64decode(data, validate=True)
    except (ValueError, binascii.Error):
        raise UsageError(f"not an image: {text[:SHOWN]!r}; expected data:image/TYPE;base64,DATA") from None


def _decoded(data: bytes, name: str) -> np.ndarray:
    image_module, operations = import_pillow()
    try:
        with image_module.open(io.BytesIO(data)) as image:
            return _rgb(operations.exif_transpose(image))
    except (OSError, ValueError, SyntaxError, EOFError, image_module.DecompressionBombError) as e:
        raise MLCError(f"cannot decode {name}: {str(e)[:SHOWN]}", hint="use a PNG, JPEG or WebP file") from None


def _rgb(image: Any) -> np.ndarray:
    image_module, _ = import_pillow()
    if "A" in image.getbands() or image.info.get("transparency") is not None:
        image = image.convert("RGBA")
        background = image_module.new("RGBA", image.size, (255, 255, 255, 255))
        image = image_module.alpha_composite(background, image)
    return np.asarray(image.convert("RGB"))
