"""The images of prompts as token ids: a token of an image is a negative number that no other image has.

Equal images have equal ids, so that a prefix of a prompt can be shared where its images are the same, and only there.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from mlc_errors import MLCError

Embed = Callable[[np.ndarray], np.ndarray]


@dataclass
class _Image:
    """An image in the table: its pixels, until they are embedded."""

    pixels: np.ndarray | None
    embeddings: np.ndarray | None = None


class ImageTable:
    """Pixels or embeddings of images by the ids of their tokens. The longest unused are dropped; ids stay taken.

    embed: pixels -> embeddings [tokens, D]. tokens: of an image. capacity: tokens of all images that are kept.
    """

    def __init__(self, embed: Embed, tokens: int, capacity: int):
        self._embed, self._tokens = embed, tokens
        self._kept = max(capacity // tokens, 1)
        self._numbers: dict[bytes, int] = {}
        self._images: OrderedDict[int, _Image] = OrderedDict()

    def ids(self, pixels: np.ndarray) -> list[int]:
        """The ids of the tokens of an image, which is added where it is new."""
        key = hashlib.sha256(pixels.tobytes()).digest()
        number = self._numbers.setdefault(key, len(self._numbers))
        self._images.setdefault(number, _Image(pixels))
        self._images.move_to_end(number)
        if len(self._images) > self._kept:
            self._images.popitem(last=False)
        first = number * self._tokens
        return [-1 - token for token in range(first, first + self._tokens)]

    def spans(self, ids: np.ndarray, size: int) -> Iterator[slice]:
        """Slices of the tokens, of at most ``size``, in each of which all are text or all are of one image."""
        numbers = np.where(ids < 0, (-1 - ids) // self._tokens, -1)
        follows = (numbers[1:] == numbers[:-1]) & ((ids[1:] >= 0) | (ids[1:] == ids[:-1] - 1))
        borders = [0, *(np.flatnonzero(~follows) + 1).tolist(), len(ids)]
        for begin, end in pairwise(borders):
            yield from (slice(first, min(first + size, end)) for first in range(begin, end, size))

    def embeddings(self, ids: np.ndarray) -> np.ndarray:
        """The embeddings of tokens of images, [n, D]. Raises MLCError for an id of no image that is kept."""
        numbers, offsets = np.divmod(-1 - ids.astype(np.int64), self._tokens)
        return np.stack([self._of(int(n))[o] for n, o in zip(numbers, offsets, strict=True)])

    def _of(self, number: int) -> np.ndarray:
        image = self._images.get(number)
        if image is None:
            raise MLCError(
                "the prompt has an image that is not kept any more", hint="make the prompt again with its images"
            )
        if image.embeddings is None:
            assert image.pixels is not None
            image.embeddings, image.pixels = self._embed(image.pixels), None
        return image.embeddings
