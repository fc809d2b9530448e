"""How codes of a few bits lie in words of 32 bits.

A group of whole words has ``32 // bits`` codes in each, the first in the lowest bits. Codes of 3, 5 or 6 bits in
groups of 32 would leave bits unused; 32 of them are cut into two planes: first the lowest 2 or 4 bits, as above, then
the rest, of 1 or 2 bits. Words of the low plane are unpacked to bytes in *steps*, four codes at a time; the high plane
has the four codes of a step in the four bytes of a word, those of the next step above them. One shift moves the high
bits of a step to where they belong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

WORD = 32
BYTES = 4  # of a word, and codes of a step
SPLIT_BITS = (3, 5, 6)


@dataclass(frozen=True)
class CodeWords:
    """Codes of ``bits`` bits in groups of ``group``.

    Methods take positions of codes, and steps, in a run: the fewest codes that fill whole words. Positions may be
    integers, arrays or expressions.
    """

    bits: int
    group: int

    @property
    def is_split(self) -> bool:
        """Whether codes are in two planes."""
        return self.bits in SPLIT_BITS and self.group % (WORD // self.bits) != 0

    @property
    def low_bits(self) -> int:
        """Of a code in the low plane; all of them where there is but one plane."""
        return (2 if self.bits == 3 else 4) if self.is_split else self.bits

    @property
    def high_bits(self) -> int:
        return self.bits - self.low_bits

    @property
    def run(self) -> int:
        """Codes of a run."""
        return WORD if self.is_split else WORD // self.bits

    @property
    def run_words(self) -> int:
        return self.bits if self.is_split else 1

    @property
    def group_words(self) -> int:
        return self.group // self.run * self.run_words

    def check(self) -> None:
        """Raise ValueError for groups that do not fill whole words."""
        if self.group < 1 or self.group % self.run:
            raise ValueError(f"group: got {self.group}; expected a multiple of the {self.run} codes in whole words")

    def low(self, position: Any) -> tuple[Any, Any]:
        """The word that has the low bits of a code, and their shift. Only of two planes, as all that follow."""
        in_word = WORD // self.low_bits
        return position // in_word, position % in_word * self.low_bits

    def high(self, position: Any) -> tuple[Any, Any]:
        """The word that has the high bits of a code, and their shift."""
        parts = WORD // BYTES // self.low_bits
        word, shift = self.high_of_step(position // (BYTES * parts) * parts + position % parts)
        return word, position // parts % BYTES * (WORD // BYTES) + shift

    def high_of_step(self, step: Any) -> tuple[Any, Any]:
        """The word that has the high bits of a step in its bytes, and their shift in each of them."""
        steps = WORD // BYTES // self.high_bits
        return self.low_bits + step // steps, step % steps * self.high_bits
