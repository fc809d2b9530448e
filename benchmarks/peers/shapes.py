"""The measured models, and their minimum work."""

from __future__ import annotations

from dataclasses import dataclass

LONGEST = 8192  # maximum tokens of a prompt
ROOM = 512  # tokens after it, for the measured steps
CONTEXT = LONGEST + ROOM
MOST_SEQUENCES = 16
REFERENCE = "reference.json"  # in a checkpoint's folder: a prompt, and its continuation in float32
REFERENCE_STEPS = 16


@dataclass(frozen=True)
class Shape:
    """The sizes of a Llama. tied: the head's weights are the embeddings."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    tied: bool

    @property
    def linear(self) -> int:
        """The number of weights of the layers' matrices."""
        kv = self.hidden * self.kv_heads // self.heads
        return self.layers * self.hidden * (2 * self.hidden + 2 * kv + 3 * self.intermediate)

    @property
    def head(self) -> int:
        """The number of weights of the output head."""
        return self.vocabulary * self.hidden

    def prefill_flop(self, tokens: int) -> int:
        """Operations of a prefill, two per multiply-add: matrices for each token, the head once, causal attention."""
        attention = self.layers * self.hidden * tokens * (tokens + 1)
        return 2 * (self.linear * tokens + self.head + attention)

    def step_bytes(self, weight_bits: float, cache_bytes: int, batch: int, depth: int) -> float:
        """Bytes that a decode step reads: all matrices once, keys and values of each sequence's ``depth`` tokens."""
        cache = 2 * self.layers * self.hidden * self.kv_heads // self.heads * cache_bytes
        return (self.linear + self.head) * weight_bits / 8 + batch * depth * cache


SHAPES = {
    "smollm2": Shape(576, 1536, 30, 9, 3, 49152, tied=True),
    "llama-1.1b": Shape(2048, 5632, 22, 32, 4, 49152, tied=False),
}
