"""Bit allocation for a mixture of a given size: more bits go to the weights where they reduce the divergence most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from quantization import group
from quantization.schemes import SCHEMES, Scheme

CANDIDATES = ("q4f16_nl8", "q4f16_nl8_g16", "q5f16_nl8", "q6f16_nl8", "q8f16_1")
"""Schemes that may replace the base scheme."""
_SAMPLE = np.random.default_rng(0).standard_normal((64, 1280)).astype(np.float16)  # whole groups of every scheme


@dataclass(frozen=True)
class Unit:
    """A group of parameters that share a scheme.

    elements: total number of elements. divergence: in nats, measured by ``mlc_toolchain.sensitivity``. rows: the unit
    consists of these rows of a single parameter; None for all of them.
    """

    names: tuple[str, ...]
    elements: int
    divergence: float
    rows: slice | None = None

    def described(self, name: str) -> str:
        """A parameter's name with the rows."""
        return name if self.rows is None else f"{name}[{self.rows.start}:{self.rows.stop}]"


def allocate(units: Sequence[Unit], base: Scheme, extra_bits: float) -> list[Scheme]:
    """Choose the scheme of each unit, such that all together take at most ``extra_bits`` more than in ``base``.

    Greedy: each step takes the change with the largest reduction of the sum of divergences per bit. A unit's divergence
    in another scheme is estimated as its divergence in the base, scaled by the ratio of the schemes' squared errors on
    normally distributed weights.
    """
    steps = [base, *(s for name in CANDIDATES if bits_per_weight(s := SCHEMES[name]) > bits_per_weight(base))]
    bits, errors = [bits_per_weight(s) for s in steps], [_squared_error(s) for s in steps]
    level, left = [0] * len(units), extra_bits

    def cost(unit: int) -> float:
        return units[unit].elements * (bits[level[unit] + 1] - bits[level[unit]])

    def gain(unit: int) -> float:
        return units[unit].divergence * (errors[level[unit]] - errors[level[unit] + 1]) / cost(unit)

    while fitting := [i for i in range(len(units)) if level[i] + 1 < len(steps) and cost(i) <= left]:
        best = max(fitting, key=gain)
        left -= cost(best)
        level[best] += 1
    return [steps[i] for i in level]


def bits_per_weight(scheme: Scheme) -> float:
    """Bits per weight of a group quantization scheme, including its scales."""
    return (32 * scheme.code_words.group_words + 8 * np.dtype(scheme.scale_dtype).itemsize) / scheme.group


def mixture_parts(units: Sequence[Unit], schemes: Sequence[Scheme], base: Scheme) -> list[tuple[str, str]]:
    """The parts (path or pattern, scheme) of a mixture; layers that differ only in numbers share a pattern."""
    chosen: dict[str, str] = {}
    parts: list[tuple[str, str]] = []
    for unit, scheme in zip(units, schemes, strict=True):
        paths = [name.removesuffix(".weight") for name in unit.names]
        if unit.rows is not None:
            if parts and parts[-1] == (f"{paths[0]}[:{unit.rows.start}]", scheme.name):
                parts.pop()  # one range with the rows before
            parts.append((f"{paths[0]}[:{unit.rows.stop}]", scheme.name))
        else:
            chosen |= dict.fromkeys(paths, scheme.name)
    for pattern, paths in _alike(chosen).items():
        together = {chosen[path] for path in paths}
        fits_no_other = sum(fnmatchcase(path, pattern) for path in chosen) == len(paths)
        one = len(together) == 1 and fits_no_other
        named = [(pattern, together.pop())] if one else [(path, chosen[path]) for path in paths]
        parts += [(place, name) for place, name in named if name != base.name]
    return parts


def kinds(names: Sequence[str]) -> dict[str, list[str]]:
    """Group parameter names by their role in a layer, in the order of the layers."""
    return _alike(names)


def _alike(paths: Sequence[str] | Mapping[str, str]) -> dict[str, list[str]]:
    """Group paths by their pattern, in which numbers are replaced by ``*``."""
    found: dict[str, list[str]] = {}
    for path in paths:
        found.setdefault(".".join("*" if part.isdigit() else part for part in path.split(".")), []).append(path)
    return found


def _squared_error(scheme: Scheme) -> float:
    back = group.decode(group.encode(_SAMPLE, scheme), scheme, _SAMPLE.shape[1], scheme.layout).astype(np.float32)
    return float(np.square(back - _SAMPLE).mean())
