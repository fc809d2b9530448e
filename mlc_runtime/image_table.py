"""The images of prompts as token ids: a token of an image is a negative number that no other image has.

Equal images have equal ids, so that a prefix of a prompt can be shared where its images are the same, and only there.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from mlc_errors import MLCError

Inputs = Mapping[str, np.ndarray]
Embed = Callable[[Inputs], np.ndarray]


@dataclass
class _Image:
    """An image in the table: its inputs, until they are embedded."""

    inputs: Inputs | None
    tokens: int
    embeddings: np.ndarray | None = None


class ImageTable:
    """Inputs or embeddings of images by the ids of their tokens. The longest unused are dropped; ids stay taken.

    embed: the inputs of ``image_embed`` -> embeddings [tokens, D]. capacity: tokens of all images that are kept.
    """

    def __init__(self, embed: Embed, capacity: int):
        self._embed, self._capacity = embed, capacity
        self._numbers: dict[bytes, int] = {}
        self._grids: list[tuple[int, int]] = []
        self._ends = np.zeros(1, np.int64)  # of the tokens of each image, after those of all before it
        self._images: OrderedDict[int, _Image] = OrderedDict()

    def ids(self, inputs: Inputs, grid: tuple[int, int]) -> list[int]:
        """The ids of the tokens of an image, which is added where it is new. grid: rows and columns of its tokens."""
        shapes = str([(name, array.shape) for name, array in inputs.items()]).encode()
        key = hashlib.sha256(b"".join([shapes, *(array.tobytes() for array in inputs.values())])).digest()
        number = self._numbers.setdefault(key, len(self._numbers))
        if number == len(self._grids):
            self._grids.append(grid)
            self._ends = np.append(self._ends, self._ends[-1] + grid[0] * grid[1])
        begin, end = self._ends[number : number + 2].tolist()
        self._images.setdefault(number, _Image(inputs, end - begin))
        self._images.move_to_end(number)
        while len(self._images) > 1 and sum(image.tokens for image in self._images.values()) > self._capacity:
            self._images.popitem(last=False)
        return [-1 - token for token in range(begin, end)]

    def cell(self, token: int) -> tuple[int, int, int]:
        """The index of a token in its image, and the rows and columns of the image's tokens."""
        number, index = (int(x[0]) for x in self._places(np.array([token])))
        return index, *self._grids[number]

    def spans(self, ids: np.ndarray, size: int) -> Iterator[slice]:
        """Slices of the tokens, of at most ``size``, in each of which all are text or all are of one image."""
        numbers = np.where(ids < 0, self._places(np.minimum(ids, -1))[0], -1)
        follows = (numbers[1:] == numbers[:-1]) & ((ids[1:] >= 0) | (ids[1:] == ids[:-1] - 1))
        borders = [0, *(np.flatnonzero(~follows) + 1).tolist(), len(ids)]
        for begin, end in pairwise(borders):
            yield from (slice(first, min(first + size, end)) for first in range(begin, end, size))

    def embeddings(self, ids: np.ndarray) -> np.ndarray:
        """The embeddings of tokens of images, [n, D]. Raises MLCError for an id of no image that is kept."""
        numbers, indices = self._places(ids)
        return np.stack([self._of(int(n))[i] for n, i in zip(numbers, indices, strict=True)])

    def _places(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The number of each token's image, and the token's index in it."""
        tokens = -1 - ids.astype(np.int64)
        numbers = np.searchsorted(self._ends, tokens, side="right") - 1
        return numbers, tokens - self._ends[numbers]

    def _of(self, number: int) -> np.ndarray:
        image = self._images.get(number)
        if image is None:
            raise MLCError(
                "the prompt has an image that is not kept any more", hint="make the prompt again with its images"
            )
        if image.embeddings is None:
            assert image.inputs is not None
            image.embeddings, image.inputs = self._embed(image.inputs), None
        return image.embeddings
