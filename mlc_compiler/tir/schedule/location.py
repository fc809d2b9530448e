"""Places to which ``sample_compute_location`` may move a block."""

from __future__ import annotations

from collections.abc import Callable

from ...ir.expr import Var
from ...ir.visitor import uses
from ..nodes import BlockRealize, For, PrimFunc
from .affine import is_one
from .sampling import INLINE, ROOT
from .tree import block_path, consumers, loops_above, statements

Allowed = Callable[[Var | None], bool]


def compute_locations(func: PrimFunc, name: str, allowed: Allowed) -> dict[int, Var | None]:
    """The decisions that are possible for a block: ``ROOT``, ``INLINE``, and the numbers of loops around its readers.

    Loops are counted from the outermost around the first reader. Those are left out that have one iteration, that are
    spatial below a reduction, or that are reductions below all spatial ones. allowed: whether the block can be inlined
    (None), or moved under a loop.
    """
    places: dict[int, Var | None] = {INLINE: None} if allowed(None) else {}
    places[ROOT] = None
    loops = _shared_loops(func, name)
    spatial = [not _reduces(lp) for lp in loops]
    last = max((i for i, s in enumerate(spatial) if s), default=-1)
    for i, loop in enumerate(loops[: last + 1]):
        if is_one(loop.extent):
            continue
        if spatial[i] and not all(spatial[:i]):
            break
        if allowed(loop.var):
            places[i] = loop.var
    return places


def _shared_loops(func: PrimFunc, name: str) -> list[For]:
    """The loops around all readers of a block, outermost first."""
    first, *others = [loops_above(block_path(func, reader)) for reader in consumers(func, name)] or [[]]
    return [lp for lp in first if all(any(lp is other for other in loops) for loops in others)]


def _reduces(loop: For) -> bool:
    """Whether a reduction variable of a block inside depends on the loop."""
    inside = (s for s in statements(loop.body) if isinstance(s, BlockRealize))
    pairs = ((it, v) for s in inside for it, v in zip(s.block.iter_vars, s.iter_values, strict=True))
    return any(it.kind == "R" and uses(v, loop.var) for it, v in pairs)
