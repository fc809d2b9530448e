"""Packing of 2- to 8-bit codes into 32-bit words.

Each 32-bit word holds ``32 // bits`` codes of a group, the first in the lowest bits. Codes of 3, 5 or 6 bits in
groups of 32 would leave bits unused; 32 of them are split into two bit planes: first the lowest 2 or 4 bits of each
code, packed as above, then the remaining 1 or 2 bits. Words of the low plane are unpacked to bytes in *steps* of four
codes; in the high plane the four codes of a step occupy the four bytes of a word, and those of the next step the bits
above them, so that one shift aligns the high bits of a whole step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

WORD = 32
BYTES = 4  # bytes per word; also the number of codes per step
SPLIT_BITS = (3, 5, 6)


@dataclass(frozen=True)
class CodeWords:
    """Packing of ``bits``-bit codes in quantization groups of ``group`` codes.

    Methods take the positions of codes, or of steps, within a run: the smallest number of codes that fills whole words.
    Positions may be integers, arrays or expressions.
    """

    bits: int
    group: int

    @property
    def is_split(self) -> bool:
        """Whether codes are split into two bit planes."""
        return self.bits in SPLIT_BITS and self.group % (WORD // self.bits) != 0

    @property
    def low_bits(self) -> int:
        """Bits of a code in the low plane; all of its bits when there is only one plane."""
        return (2 if self.bits == 3 else 4) if self.is_split else self.bits

    @property
    def high_bits(self) -> int:
        return self.bits - self.low_bits

    @property
    def run(self) -> int:
        """Number of codes in a run."""
        return WORD if self.is_split else WORD // self.bits

    @property
    def run_words(self) -> int:
        return self.bits if self.is_split else 1

    @property
    def group_words(self) -> int:
        return self.group // self.run * self.run_words

    def check(self) -> None:
        """Raise ValueError when a group does not fill whole words."""
        if self.group < 1 or self.group % self.run:
            raise ValueError(f"group: got {self.group}; expected a multiple of the {self.run} codes in whole words")

    def low(self, position: Any) -> tuple[Any, Any]:
        """Index of the word with the low bits of a code, and their shift. This and what follows need ``is_split``."""
        in_word = WORD // self.low_bits
        return position // in_word, position % in_word * self.low_bits

    def high(self, position: Any) -> tuple[Any, Any]:
        """The index of the word with the high bits of a code, and their shift."""
        parts = WORD // BYTES // self.low_bits
        word, shift = self.high_of_step(position // (BYTES * parts) * parts + position % parts)
        return word, position // parts % BYTES * (WORD // BYTES) + shift

    def high_of_step(self, step: Any) -> tuple[Any, Any]:
        """The index of the word with the high bits of a step, one code per byte, and their shift within each byte."""
        steps = WORD // BYTES // self.high_bits
        return self.low_bits + step // steps, step % steps * self.high_bits
