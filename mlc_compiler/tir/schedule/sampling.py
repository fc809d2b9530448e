"""Sampling steps: random choices that the trace records and replays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from random import Random

from ...ir.expr import IntImm, Var
from ..nodes import For
from .tree import ScheduleError


class Choice(int):
    """A sampled integer. The trace identifies it by object identity."""


INLINE, ROOT = -2, -1
"""Decisions of ``sample_compute_location`` that are no loops: inlined into the readers, and left where it is."""


@dataclass(frozen=True, eq=False)
class Location:
    """A sampled place for a block: ``loop``, or none for ``INLINE`` and ``ROOT``; ``options``: all possible decisions.

    The trace identifies it by object identity.
    """

    decision: int
    loop: Var | None
    options: tuple[int, ...]


@lru_cache(maxsize=1024)
def perfect_tilings(extent: int, parts: int, max_innermost: int) -> tuple[tuple[int, ...], ...]:
    """All ways to write ``extent`` as a product of ``parts`` factors, the last of them at most ``max_innermost``."""
    if parts == 1:
        return ((extent,),) if extent <= max_innermost else ()
    divisors = [d for d in range(1, extent + 1) if extent % d == 0]
    return tuple((d, *rest) for d in divisors for rest in perfect_tilings(extent // d, parts - 1, max_innermost))


def choose_tiling(
    random: Random, loop: For, parts: int, max_innermost: int, decision: Sequence[int] | None
) -> list[Choice]:
    """Sample factors whose product is the loop's extent. Raises ScheduleError for an invalid decision."""
    name = loop.var.name
    if not isinstance(loop.extent, IntImm):
        raise ScheduleError(f"sample_perfect_tile: the extent of {name!r} is not a constant")
    if parts < 1:
        raise ScheduleError(f"sample_perfect_tile: got n = {parts}; expected 1 or more")
    extent = loop.extent.value
    if decision is None:
        tilings = perfect_tilings(extent, parts, max_innermost)
        if not tilings:
            raise ScheduleError(f"sample_perfect_tile: no {parts} factors of {extent} end in {max_innermost} or less")
        decision = random.choice(tilings)
    if len(decision) != parts or prod(decision) != extent or any(d < 1 for d in decision):
        raise ScheduleError(f"sample_perfect_tile: got {list(decision)}; expected {parts} factors of {extent}")
    return [Choice(d) for d in decision]


def choose_category(
    random: Random, candidates: Sequence[int], probs: Sequence[float], decision: int | None
) -> tuple[Choice, int]:
    """Sample a candidate; returns it with its position. Raises ScheduleError for invalid probabilities or decisions."""
    if not candidates or len(candidates) != len(probs) or any(p < 0 for p in probs) or not sum(probs) > 0:
        raise ScheduleError(
            f"sample_categorical: got {len(candidates)} candidates and probabilities {list(probs)}; "
            "expected as many, none negative, not all zero"
        )
    if decision is None:
        (decision,) = random.choices(range(len(candidates)), probs)
    if not 0 <= decision < len(candidates):
        raise ScheduleError(f"sample_categorical: got decision {decision}; there are {len(candidates)} candidates")
    return Choice(candidates[decision]), decision


def choose_location(random: Random, places: Mapping[int, Var | None], decision: int | None) -> tuple[Location, int]:
    """One of the places, by decision, and the decision; an impossible decision takes the greatest one below it."""
    options = tuple(sorted(places))
    if decision is None:
        decision = random.choice(options)
    decision = max((d for d in options if d <= decision), default=ROOT)
    return Location(decision, places[decision], options), decision
