"""Schedule: a tensor function and the steps that reshape its loops without changing what it computes.

Blocks are named by strings, loops by their loop variables. Every step is appended to ``trace``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.expr import ExprLike, IntImm, Var
from ..intrinsics import find as find_intrinsic
from ..nodes import THREAD, Block, Buffer, PrimFunc
from . import blocks, loops
from .factor import factor_reduction
from .tensorize import tensorize
from .tree import block_names, block_path, consumers, find_block, find_loop, loops_above, producers


class Schedule:
    """Steps over one tensor function; ``func`` is the current state."""

    def __init__(self, func: PrimFunc):
        self.func = func
        self.trace: list[str] = []

    def _note(self, step: str, *args: Any) -> None:
        shown = ", ".join(a.name if isinstance(a, Var) else repr(a) for a in args)
        self.trace.append(f"{step}({shown})")

    # -- looking ------------------------------------------------------------------------------------------------

    def get_block(self, name: str) -> str:
        """The block of that name. Raises ScheduleError listing the blocks there are."""
        return find_block(self.func, name).block.name

    def get_blocks(self) -> list[str]:
        """All blocks but the root, in order of execution."""
        return block_names(self.func)

    def block(self, name: str) -> Block:
        return find_block(self.func, name).block

    def get_loops(self, block: str) -> list[Var]:
        """The loops around a block, outermost first."""
        return [lp.var for lp in loops_above(block_path(self.func, block))]

    def extent(self, loop: Var) -> Any:
        """The extent of a loop: an int when it is constant."""
        extent = find_loop(self.func, loop).extent
        return extent.value if isinstance(extent, IntImm) else extent

    def get_producers(self, buffer: Buffer) -> list[str]:
        return producers(self.func, buffer)

    def get_consumers(self, buffer: Buffer) -> list[str]:
        return consumers(self.func, buffer)

    # -- loops --------------------------------------------------------------------------------------------------

    def split(self, loop: Var, factors: Sequence[ExprLike | None]) -> list[Var]:
        """One loop into ``len(factors)`` nested loops; one factor may be None (what is left)."""
        self.func, new = loops.split(self.func, loop, factors)
        self._note("split", loop, list(factors))
        return new

    def fuse(self, *nested: Var) -> Var:
        """Directly nested loops into one."""
        self.func, fused = loops.fuse(self.func, nested)
        self._note("fuse", *nested)
        return fused

    def reorder(self, *order: Var) -> None:
        """Loops of a perfect nest in the given order."""
        self.func = loops.reorder(self.func, order)
        self._note("reorder", *order)

    def parallel(self, loop: Var) -> None:
        """Divide the iterations over the worker team."""
        self._kind("parallel", loop)

    def vectorize(self, loop: Var) -> None:
        """Run the iterations as SIMD lanes."""
        self._kind("vectorized", loop)

    def unroll(self, loop: Var) -> None:
        """Write the iterations out one after the other."""
        self._kind("unroll", loop)

    def bind(self, loop: Var, thread: str) -> None:
        """Let a GPU index (``blockIdx.x``, ``threadIdx.y`` …) run the loop."""
        self.func = loops.set_kind(self.func, loop, THREAD, thread)
        self._note("bind", loop, thread)

    def _kind(self, kind: str, loop: Var) -> None:
        self.func = loops.set_kind(self.func, loop, kind)
        self._note(kind, loop)

    def annotate(self, loop: Var, key: str, value: Any) -> None:
        self.func = loops.annotate(self.func, loop, key, value)
        self._note("annotate", loop, key, value)

    def partition(self, nests: Sequence[Var], points: Sequence[ExprLike]) -> tuple[list[list[Var]], list[str]]:
        """The function once for each part of one loop of each top-level nest; see ``loops.partition``."""
        self.func, parts, suffixes = loops.partition(self.func, nests, points)
        self._note("partition", [v.name for v in nests], list(points))
        return parts, suffixes

    def merge(self, *siblings: Var) -> Var:
        """Neighbouring loops of equal extent, with independent iterations, into one."""
        self.func, merged = loops.merge(self.func, siblings)
        self._note("merge", *siblings)
        return merged

    # -- blocks -------------------------------------------------------------------------------------------------

    def compute_inline(self, block: str) -> None:
        """Replace reads of an element-wise block's result by its formula."""
        self.func = blocks.compute_inline(self.func, block)
        self._note("compute_inline", block)

    def reverse_compute_inline(self, block: str) -> None:
        """Move an element-wise block into the producer of its input."""
        self.func = blocks.reverse_compute_inline(self.func, block)
        self._note("reverse_compute_inline", block)

    def compute_at(self, block: str, loop: Var) -> None:
        """Compute a producer inside a loop, just what each iteration reads."""
        self.func = blocks.compute_at(self.func, block, loop)
        self._note("compute_at", block, loop)

    def reverse_compute_at(self, block: str, loop: Var) -> None:
        """Run a consumer inside a loop, on just what each iteration produced."""
        self.func = blocks.reverse_compute_at(self.func, block, loop)
        self._note("reverse_compute_at", block, loop)

    def cache_write(self, block: str, scope: str) -> str:
        """Let a block write to a buffer of ``scope`` first; returns the name of the block that copies it out."""
        self.func, copy = blocks.cache_write(self.func, block, scope)
        self._note("cache_write", block, scope)
        return copy

    def cache_read(self, block: str, read_index: int, scope: str) -> str:
        """Let a block read one input from a copy in ``scope``; returns the name of the block that copies it in."""
        self.func, copy = blocks.cache_read(self.func, block, read_index, scope)
        self._note("cache_read", block, read_index, scope)
        return copy

    def decompose_reduction(self, block: str, loop: Var) -> str:
        """Initialise a reduction in a block of its own before ``loop``; returns its name."""
        self.func, init = blocks.decompose_reduction(self.func, block, loop)
        self._note("decompose_reduction", block, loop)
        return init

    def factor_reduction(self, block: str, group: int) -> str:
        """Sum each group of a reduction first, factors that are constant within a group outside; see ``factor.py``."""
        self.func, inner = factor_reduction(self.func, block, group)
        self._note("factor_reduction", block, group)
        return inner

    def tensorize(self, loop: Var, intrinsic: str) -> None:
        """Replace the nest from ``loop`` inwards by a hardware instruction of the table in ``tir/intrinsics.py``."""
        self.func = tensorize(self.func, loop, find_intrinsic(intrinsic))
        self._note("tensorize", loop, intrinsic)

    def tile_layout(self, buffer: Buffer, axis: int, factor: int) -> Buffer:
        """Store a buffer in tiles of one axis, tile innermost; see ``blocks.tile_layout``."""
        self.func, tiled = blocks.tile_layout(self.func, buffer, axis, factor)
        self._note("tile_layout", buffer.name, axis, factor)
        return tiled
