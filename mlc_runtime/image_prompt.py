"""Prompts with images: message parts, the model's placeholders, and the ids of image tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from mlc_errors import MLCError, UsageError
from mlc_runtime.image_table import ImageTable
from mlc_runtime.image_views import ImageProcessor, Views
from mlc_runtime.images import load_image
from mlc_runtime.model_spec import ImageSpec
from mlc_runtime.tokenizer import Tokenizer


@dataclass(frozen=True)
class ImagePrompts:
    """Encodes texts with images to token ids, for one model."""

    spec: ImageSpec
    tokenizer: Tokenizer
    processor: ImageProcessor
    table: ImageTable

    @property
    def placeholder(self) -> str:
        """The text that represents an image in a prompt."""
        return self._token(self.spec.placeholder_id)

    def encode(self, text: str, images: Sequence[Any], *, add_special_tokens: bool) -> list[int]:
        """Token ids of a text with a placeholder for each image. Raises UsageError if their numbers differ."""
        pieces = text.split(self.placeholder)
        if len(pieces) - 1 != len(images):
            raise UsageError(
                f"the prompt has {len(pieces) - 1} placeholders {self.placeholder} for {len(images)} images",
                hint="write the placeholder once for each image, and not in other texts",
            )
        views = [self._views(image) for image in images]
        text = pieces[0] + "".join(self._expansion(v) + piece for v, piece in zip(views, pieces[1:], strict=True))
        ids = self.tokenizer.encode(text, add_special_tokens=add_special_tokens)
        runs = [run for v in views for run in self._runs(v)]
        if ids.count(self.spec.token_id) != len(runs):
            raise UsageError(f"the prompt has the text {self._token(self.spec.token_id)}, which stands for an image")
        rest = iter(runs)
        return [i for token in ids for i in (next(rest) if token == self.spec.token_id else [token])]

    def _runs(self, views: Views) -> list[list[int]]:
        """The ids of an image's tokens, in one run per view, per row of tokens, or for the whole image."""
        runs = [self.table.ids(view.inputs, view.grid or (1, self.spec.tokens)) for view in views.views]
        if self.spec.row_ends:
            sizes = [columns for _, columns in _grids(views)]
            return [run[i : i + n] for run, n in zip(runs, sizes, strict=True) for i in range(0, len(run), n)]
        return [in_rows(runs, views.columns, self.spec.row_tokens)] if self.spec.row_tokens else runs

    def _views(self, source: Any) -> Views:
        views = self.processor.views(load_image(source))
        expected = self.spec.shape
        for shape in (view.inputs["pixel_values"].shape for view in views.views):
            if shape[1:] != expected[1:]:
                raise MLCError(
                    f"the image_processor of mlc-chat-config.json makes pixels {list(shape)}; the model takes "
                    f"{list(expected)}"
                )
        return views

    def _expansion(self, views: Views) -> str:
        """The text that replaces an image's placeholder: its tiles row by row, then the whole image."""
        whole, tile = (self._text(parts) for parts in (self.spec.expansion, self.spec.tile))
        if self.spec.row_ends:
            after_row, after_last = (whole + end for end in self.spec.row_ends)
            return "".join(after_row * (rows - 1) + after_last for rows, _ in _grids(views))
        if not views.rows or self.spec.row_tokens:
            return self.spec.opening + whole
        between, after_row, after_rows = self.spec.separators
        columns = range(1, views.columns + 1)
        rows = [between.join(tile.format(row=row + 1, column=c) for c in columns) for row in range(views.rows)]
        return self.spec.opening + "".join(row + after_row for row in rows) + after_rows + whole

    def _text(self, parts: Sequence[str | int]) -> str:
        return "".join(part if isinstance(part, str) else self._token(part) for part in parts)

    def _token(self, token_id: int) -> str:
        text = self.tokenizer.token(token_id)
        if text is None:
            raise MLCError(f"the tokenizer has no token {token_id}, which stands for an image")
        return text


def _grids(views: Views) -> list[tuple[int, int]]:
    return [view.grid for view in views.views if view.grid]


def in_rows(runs: Sequence[Sequence[int]], columns: int, row_tokens: int) -> list[int]:
    """Order the tokens of tiles by rows of the image, followed by those of the whole image.

    runs: the tokens of each tile, ``columns`` tiles per row, then of the whole image, each followed by a row-end token
    and a separator; those of the last run end every row and precede the whole image.
    """
    *tiles, whole = ([run[i : i + row_tokens] for i in range(0, len(run) - 2, row_tokens)] for run in runs)
    row_end, before_whole = runs[-1][-2:]
    bands = [tiles[i : i + columns] for i in range(0, len(tiles), columns)]
    rows = [[*chain(*pieces), row_end] for band in bands for pieces in zip(*band, strict=True)]
    return [*chain(*rows), before_whole, *(i for row in whole for i in (*row, row_end))]


def user_message(text: str, images: Sequence[Any]) -> dict:
    """A user message with images before a text."""
    parts = [*({"type": "image", "image": image} for image in images), {"type": "text", "text": text}]
    return {"role": "user", "content": parts if images else text}


def without_images(messages: Sequence[dict]) -> tuple[list[dict], list[Any]]:
    """Replace each image by a part ``{"type": "image"}``; returns the messages and the images in order.

    A part with an image is ``{"type": "image", "image": …}`` or ``{"type": "image_url", "image_url": {"url": …}}``,
    a text ``{"type": "text", "text": …}``. Raises UsageError for other parts and for messages without a role.
    """
    _check_messages(messages)
    images: list[Any] = []

    def plain(part: Any) -> dict:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "text" and isinstance(part.get("text"), str):
            return {"type": "text", "text": part["text"]}
        if kind not in ("image", "image_url") or part.get(kind) is None:
            raise UsageError(f"a part of a message is {str(part)[:80]}; expected a text or an image")
        image = part[kind]
        images.append(image.get("url") if isinstance(image, Mapping) else image)
        return {"type": "image"}

    def converted(message: dict) -> dict:
        content = message.get("content")
        return {**message, "content": [plain(p) for p in content]} if isinstance(content, list | tuple) else message

    return [converted(m) for m in messages], images


def _check_messages(messages: object) -> None:
    found = messages if isinstance(messages, list | tuple) else [messages]
    wrong = [m for m in found if not (isinstance(m, Mapping) and isinstance(m.get("role"), str))]
    if wrong or found is not messages:
        got = str(wrong[0] if wrong else messages)[:80]
        raise UsageError(f"messages have {got!r}; expected a list of dicts with a role and a content")


def with_placeholders(messages: Sequence[dict], placeholder: str) -> list[dict]:
    """Replace lists of parts by texts: an image becomes the placeholder and a newline."""

    def text(part: dict) -> str:
        return placeholder + "\n" if part["type"] == "image" else part["text"]

    def joined(message: dict) -> dict:
        content = message.get("content")
        return {**message, "content": "".join(map(text, content))} if isinstance(content, list) else message

    return [joined(m) for m in messages]


def with_parts(messages: Sequence[dict]) -> list[dict]:
    """Replace texts by lists of parts, for templates that support parts only."""

    def split(message: dict) -> dict:
        content = message.get("content")
        return {**message, "content": [{"type": "text", "text": content}]} if isinstance(content, str) else message

    return [split(m) for m in messages]
