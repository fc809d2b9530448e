"""The measurements of an engine with a model: prefill by prompt length, decode by depth and batch size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

FEW_TOKENS = 256  # maximum length of the warm-up prompt


class Kind(StrEnum):
    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True)
class Cell:
    """A measurement. tokens: prompt length; for decode, tokens before the first step (depth 0: a one-token prompt)."""

    kind: Kind
    tokens: int
    batch: int = 1

    @property
    def prompt(self) -> int:
        """The number of tokens of each sequence's prompt."""
        return max(self.tokens, 1)

    @property
    def title(self) -> str:
        if self.kind is Kind.PREFILL:
            return f"prefill {self.tokens}"
        return f"decode at {self.tokens}" + (f", batch {self.batch}" if self.batch > 1 else "")


def grid(prompts: Sequence[int], depths: Sequence[int], batches: Sequence[int], batch_depth: int) -> list[Cell]:
    """Prompts; single sequences at each depth; batches at one depth. Each cell once."""
    cells = [Cell(Kind.PREFILL, tokens) for tokens in prompts]
    cells += [Cell(Kind.DECODE, depth) for depth in depths]
    cells += [Cell(Kind.DECODE, batch_depth, batch) for batch in batches]
    return list(dict.fromkeys(cells))
