"""Token ids for images in prompts: each token of an image has a unique negative id.

Equal images have equal ids, so that prompts share a cached prefix only if its images are equal.
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
    """Inputs or embeddings of images by their token ids; an LRU cache. Ids of evicted images are not reused.

    embed: the inputs of ``image_embed`` -> embeddings [tokens, D]. capacity: maximum tokens of all cached images.
    """

    def __init__(self, embed: Embed, capacity: int):
        self._embed, self._capacity = embed, capacity
        self._numbers: dict[bytes, int] = {}
        self._grids: list[tuple[int, int]] = []
        self._ends = np.zeros(1, np.int64)  # cumulative number of tokens after each image
        self._images: OrderedDict[int, _Image] = OrderedDict()

    def ids(self, inputs: Inputs, grid: tuple[int, int]) -> list[int]:
        """The token ids of an image, which is added if it is new. grid: rows and columns of its tokens."""
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
        """Split the tokens into slices of at most ``size``, each all text or all of one image."""
        numbers = np.where(ids < 0, self._places(np.minimum(ids, -1))[0], -1)
        follows = (numbers[1:] == numbers[:-1]) & ((ids[1:] >= 0) | (ids[1:] == ids[:-1] - 1))
        borders = [0, *(np.flatnonzero(~follows) + 1).tolist(), len(ids)]
        for begin, end in pairwise(borders):
            yield from (slice(first, min(first + size, end)) for first in range(begin, end, size))

    def embeddings(self, ids: np.ndarray) -> np.ndarray:
        """The embeddings of image tokens, [n, D]. Raises MLCError for an id whose image was evicted."""
        numbers, indices = self._places(ids)
        return np.stack([self._of(int(n))[i] for n, i in zip(numbers, indices, strict=True)])

    def _places(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Each token's image number, and the token's index in that image."""
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
