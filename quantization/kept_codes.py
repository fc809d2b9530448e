"""Already quantized weights: represent their integer levels in a group scheme, or keep their stored form."""

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
        """The dequantized weights, float32 [N, K]."""
        return self.levels.astype(np.float32) * np.repeat(self.scales.astype(np.float32), self.group, axis=1)


@dataclass(frozen=True)
class StoredForm:
    """A quantized weight [N, K] of a checkpoint, stored in the format of one of the scheme kinds.

    kind: kind of the schemes; block: numbers of outputs and inputs that share a scale.
    read: returns a stored tensor by its name in the scheme's layers, with outputs along the first axis.
    has_input_scales: whether scales of the inputs are stored, too.
    """

    kind: str
    block: tuple[int, int]
    read: Callable[[str], np.ndarray]
    has_input_scales: bool = False

    def fits(self, scheme: Scheme) -> bool:
        """Whether the scheme can keep the stored form."""
        is_complete = self.has_input_scales or not scheme.float8_inputs
        return is_complete and (self.kind, *self.block) == (scheme.kind, scheme.rows, scheme.group)


def fits(group: int, scheme: Scheme) -> bool:
    """Whether every group of the scheme lies in one group of the weights."""
    return scheme.kind == "group" and not scheme.values and group % scheme.group == 0


def encode_levels(parts: Sequence[Levels], scheme: Scheme) -> dict[str, np.ndarray] | None:
    """Codes and scales (NK) of matrices stacked along axis 0; None if most groups would not keep their levels.

    A group keeps its levels if they, or their negatives with the negated scale, are representable in the scheme; other
    groups are requantized.
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
    """int16 [N, groups]: 1 if a group's levels are representable, -1 if their negatives are, else 0."""
    lowest, highest = -scheme.zero_point, (1 << scheme.bits) - 1 - scheme.zero_point
    low, high = grouped.min(axis=-1), grouped.max(axis=-1)
    as_is = (low >= lowest) & (high <= highest)
    negated = (-high >= lowest) & (-low <= highest)
    return np.where(as_is, 1, np.where(negated, -1, 0)).astype(np.int16)
