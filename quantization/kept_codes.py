"""Weights that are already quantized: integer levels as codes of a group scheme, or the form they are stored in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from quantization.group import encode, model_dtype, pack
from quantization.schemes import Scheme


@dataclass(frozen=True)
class Levels:
    """Weights as integer multiples of scales: w[n, k] = levels[n, k] * scales[n, k // group].

    levels: int16 [N, K]; scales: [N, K / group], any float dtype; group divides K.
    """

    levels: np.ndarray
    scales: np.ndarray
    group: int

    def values(self) -> np.ndarray:
        """float32 [N, K]"""
        return self.levels.astype(np.float32) * np.repeat(self.scales.astype(np.float32), self.group, axis=1)


@dataclass(frozen=True)
class StoredForm:
    """How a checkpoint stores a quantized weight [N, K] whose format is that of a kind of scheme.

    kind: of the schemes; block: how many outputs and inputs share a scale.
    read: returns a stored tensor by the name that it has in the scheme's layers, outputs along its first axis.
    """

    kind: str
    block: tuple[int, int]
    read: Callable[[str], np.ndarray]

    def fits(self, scheme: Scheme) -> bool:
        """Whether the scheme can keep the weight as it is stored."""
        return (self.kind, *self.block) == (scheme.kind, scheme.rows, scheme.group)


def fits(group: int, scheme: Scheme) -> bool:
    """Whether every group of the scheme lies in one group of the weights."""
    return scheme.kind == "group" and not scheme.values and group % scheme.group == 0


def encode_levels(parts: Sequence[Levels], scheme: Scheme) -> dict[str, np.ndarray] | None:
    """Codes and scales, NK, of matrices stacked along axis 0; None when most groups would not keep their levels.

    A group keeps its levels when they, or their negatives with the negated scale, are codes of the scheme; other groups
    are requantized.
    """
    signs = [_signs(_grouped(part, scheme), scheme) for part in parts]
    kept = sum(np.count_nonzero(part) for part in signs)
    if 2 * kept < sum(part.size for part in signs):
        return None
    made = [_encode_part(*pair, scheme) for pair in zip(parts, signs)]
    return {kind: np.concatenate([tensors[kind] for tensors in made]) for kind in ("q_weight", "q_scale")}


def _encode_part(part: Levels, signs: np.ndarray, scheme: Scheme) -> dict[str, np.ndarray]:
    codes = _grouped(part, scheme) * signs[..., None] + np.int16(scheme.zero_point)
    words = pack(codes.astype(np.uint8).reshape(part.levels.shape), scheme)
    scales = np.repeat(part.scales, part.group // scheme.group, axis=1).astype(np.float32) * signs
    made = {"q_weight": words, "q_scale": scales.astype(model_dtype(scheme))}
    mask = signs == 0
    if mask.any():
        requantized = encode(part.values(), scheme, "NK")
        word_mask = np.repeat(mask, scheme.code_words.group_words, axis=1)
        made["q_weight"] = np.where(word_mask, requantized["q_weight"], words)
        made["q_scale"] = np.where(mask, requantized["q_scale"], made["q_scale"])
    return made


def _grouped(part: Levels, scheme: Scheme) -> np.ndarray:
    return part.levels.reshape(len(part.levels), -1, scheme.group)


def _signs(grouped: np.ndarray, scheme: Scheme) -> np.ndarray:
    """1 where the levels of a group are codes, -1 where their negatives are, 0 where neither: int16 [N, groups]."""
    lowest, highest = -scheme.zero_point, (1 << scheme.bits) - 1 - scheme.zero_point
    low, high = grouped.min(axis=-1), grouped.max(axis=-1)
    as_is = (low >= lowest) & (high <= highest)
    negated = (-high >= lowest) & (-low <= highest)
    return np.where(as_is, 1, np.where(negated, -1, 0)).astype(np.int16)
