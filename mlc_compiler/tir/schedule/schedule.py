"""Schedule: steps that transform the loop nests of tensor functions and preserve their results.

Blocks are named by strings, loops by their loop variables. A step that cannot be proved to
preserve results raises ScheduleError and leaves the function as it was. Sums may be reassociated. ``trace`` records
the steps.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from mlc_errors import MLCError

from ...ir.expr import ExprLike, IntImm, Var
from ...ir.module import IRModule
from ...ir.visitor import free_vars
from ..index_map import IndexMap, IndexMapError
from ..intrinsics import find_tensor_intrin
from ..nodes import PARALLEL, THREAD, UNROLLED, VECTORIZED, Block, PrimFunc
from ..script_intrin import find_script_intrin
from .block_layout import transform_block_layout
from .blockize import blockize
from .caching import cache_read, cache_write, set_scope, storage_align
from .compute_at import compute_at
from .factor import factor_reduction
from .inline import compute_inline
from .inplace import cache_inplace
from .layout import transform_layout
from .location import compute_locations
from .loops import annotate, fuse, reorder, set_kind, split, unannotate
from .pad_einsum import pad_einsum
from .padding import decompose_padding
from .partition import merge, partition
from .prefetch import prefetch
from .reduction import decompose_reduction
from .reindex import reindex
from .reverse_compute_at import reverse_compute_at
from .reverse_inline import reverse_compute_inline
from .rfactor import rfactor
from .rolling import rolling_buffer
from .sampling import INLINE, Location, choose_category, choose_location, choose_tiling
from .state import WorkingModule
from .steps import step, step_names
from .tensorize import tensorize
from .tensorize_script import tensorize_script
from .trace import BlockName, Trace
from .tree import (
    ScheduleError,
    block_names,
    block_path,
    child_blocks,
    consumers,
    find_block,
    find_loop,
    loops_above,
    producers,
)


class Schedule(WorkingModule):
    """Transforms the tensor functions of a module step by step; ``mod`` and ``func`` are the current state.

    mod: an IRModule, or one tensor function. func_name: the working function, searched first for blocks; by
    default the only one, or ``main``. seed: seed of the sampling steps; random by default for each
    schedule.
    """

    step_names: frozenset[str]

    def __init__(self, mod: IRModule | PrimFunc, func_name: str | None = None, *, seed: int | None = None):
        super().__init__(mod, func_name)
        self.trace = Trace()
        self._random = Random(seed)

    def copy(self, seed: int | None = None) -> Schedule:
        """An independent schedule in the same state."""
        other = copy.copy(self)
        other.trace, other._random, other._renamed = self.trace.copy(), Random(seed), dict(self._renamed)
        return other

    def show(self) -> None:
        """Print the module as TVMScript, and the trace."""
        print(self.mod.script(), self.trace, sep="\n")

    # -- queries ------------------------------------------------------------------------------------------------

    @step
    def get_block(self, name: str, func_name: str | None = None) -> BlockName:
        """The block of that name. Raises ScheduleError, which lists the blocks, when there is none."""
        func_name = func_name or (name.func_name if isinstance(name, BlockName) else self.func_name)
        return BlockName(find_block(self.function(func_name), name).block.name, func_name)

    @step
    def get_loops(self, block: str) -> list[Var]:
        """The loops around a block, outermost first."""
        func_name, name = self.home(block)
        return [lp.var for lp in loops_above(block_path(self.function(func_name), str(name)))]

    @step
    def get_child_blocks(self, target: Var | str) -> list[BlockName]:
        """The blocks directly inside a loop or a block, in order."""
        func_name, at = self.home(target)
        func = self.function(func_name)
        node = find_loop(func, at) if isinstance(at, Var) else find_block(func, at)
        return [BlockName(name, func_name) for name in child_blocks(node)]

    def get_blocks(self) -> list[str]:
        """The names of all blocks of the working function except its root, in order of execution."""
        return block_names(self.func)

    def block(self, name: str) -> Block:
        func_name, current = self.home(name)
        return find_block(self.function(func_name), str(current)).block

    def extent(self, loop: Var) -> Any:
        """The extent of a loop: an int when it is constant."""
        extent = find_loop(self.function(self.home(loop)[0]), loop).extent
        return extent.value if isinstance(extent, IntImm) else extent

    def size(self, name: str) -> Var:
        """A symbolic size or scalar parameter of the working function, by name."""
        candidates = [*free_vars([b.shape for b in self.func.buffers]), *self.func.params]
        for var in candidates:
            if isinstance(var, Var) and var.name == name:
                return var
        raise ScheduleError(f"no size {name!r} in function {self.func_name!r}")

    @step
    def get_producers(self, block: str) -> list[BlockName]:
        """The other blocks that write what a block reads."""
        return self._related(block, producers)

    @step
    def get_consumers(self, block: str) -> list[BlockName]:
        """The other blocks that read what a block writes."""
        return self._related(block, consumers)

    def _related(self, block: str, relation: Callable[[PrimFunc, str], list[str]]) -> list[BlockName]:
        func_name, name = self.home(block)
        return [BlockName(other, func_name) for other in relation(self.function(func_name), str(name))]

    # -- sampling -----------------------------------------------------------------------------------------------

    @step
    def sample_perfect_tile(
        self, loop: Var, n: int, max_innermost_factor: int = 16, decision: Sequence[int] | None = None
    ) -> Any:
        """Sample ``n`` factors of a loop's extent, the last at most ``max_innermost_factor``; or use ``decision``."""
        func = self.function(self.home(loop)[0])
        factors = choose_tiling(self._random, find_loop(func, loop), n, max_innermost_factor, decision)
        return factors, [int(f) for f in factors]

    @step
    def sample_categorical(self, candidates: Sequence[int], probs: Sequence[float], decision: int | None = None) -> Any:
        """Sample one of ``candidates`` with probabilities ``probs``; ``decision``: index of the one to take instead."""
        return choose_category(self._random, candidates, probs, decision)

    @step
    def sample_compute_location(self, block: str, decision: int | None = None) -> Any:
        """A random place for a block, for ``compute_at``: under a loop around its readers, where it is, or inlined.

        decision: the number of a loop, from the outermost around the first reader, -1 where it is, or -2 inlined. An
        impossible one takes the place before it.
        """
        func_name, name = self.home(block)

        def allowed(loop: Var | None) -> bool:
            return self._is_legal(*((compute_inline, block) if loop is None else (compute_at, block, loop)))

        places = compute_locations(self.function(func_name), str(name), allowed)
        return choose_location(self._random, places, decision)

    # -- loops --------------------------------------------------------------------------------------------------

    @step
    def split(self, loop: Var, factors: Sequence[ExprLike | None]) -> list[Var]:
        """Split a loop into ``len(factors)`` nested loops; one factor may be None (inferred).

        Where the factors exceed the extent, a predicate guards the blocks inside.
        """
        return self._run(split, loop, factors)

    @step
    def fuse(self, *loops: Var) -> Var:
        """Fuse directly nested loops into one."""
        return self._run_all(fuse, loops)

    @step
    def reorder(self, *loops: Var) -> None:
        """Reorder loops of a perfect nest; other loops between them keep their positions."""
        self._run_all(reorder, loops)

    @step
    def parallel(self, loop: Var) -> None:
        """Distribute the loop's iterations over the worker threads."""
        self._run(set_kind, loop, PARALLEL)

    @step
    def vectorize(self, loop: Var) -> None:
        """Execute the loop's iterations as SIMD lanes."""
        self._run(set_kind, loop, VECTORIZED)

    @step
    def unroll(self, loop: Var) -> None:
        """Unroll the loop completely."""
        self._run(set_kind, loop, UNROLLED)

    @step
    def bind(self, loop: Var, thread_axis: str) -> None:
        """Bind the loop to a GPU index (``blockIdx.x``, ``threadIdx.y`` …) or to virtual threads (``vthread.x`` …).

        All virtual threads of a loop run on one thread, interleaved statement by statement.
        """
        self._run(set_kind, loop, THREAD, thread_axis)

    @step
    def annotate(self, target: Var | str, ann_key: str, ann_val: Any) -> None:
        """Set an annotation of a loop or a block."""
        self._run(annotate, target, ann_key, ann_val)

    @step
    def unannotate(self, target: Var | str, ann_key: str) -> None:
        """Remove an annotation of a loop or a block."""
        self._run(unannotate, target, ann_key)

    @step
    def partition(self, loops: Sequence[Var], points: Sequence[ExprLike]) -> tuple[list[list[Var]], list[str]]:
        """Copy the loop nests for parts of one loop of each top-level nest; see ``partition.py``."""
        return self._run_all(partition, tuple(loops), points)

    @step
    def merge(self, *loops: Var) -> Var:
        """Merge adjacent sibling loops of equal extent, with independent iterations, into one loop."""
        return self._run_all(merge, loops)

    # -- blocks -------------------------------------------------------------------------------------------------

    @step
    def compute_inline(self, block: str) -> None:
        """Replace reads of an element-wise block's result by its expression, and remove the block."""
        self._run(compute_inline, block)

    @step
    def reverse_compute_inline(self, block: str) -> None:
        """Inline an element-wise block into the producer of its input."""
        self._run(reverse_compute_inline, block)

    @step
    def compute_at(self, block: str, loop: Var | Location) -> None:
        """Move a producer inside a loop, to compute the region that each iteration reads.

        loop: it may be a result of ``sample_compute_location``.
        """
        if not isinstance(loop, Location):
            self._run(compute_at, block, loop)
        elif loop.loop is not None:
            self._run(compute_at, block, loop.loop)
        elif loop.decision == INLINE:
            self._run(compute_inline, block)

    @step
    def reverse_compute_at(self, block: str, loop: Var) -> None:
        """Move a consumer under a loop, to process the region that each iteration produces."""
        self._run(reverse_compute_at, block, loop)

    @step
    def cache_write(self, block: str, write_buffer_index: int | str = 0, storage_scope: str = "local") -> BlockName:
        """Redirect a block's writes to a buffer in another scope; returns the block that copies it out.

        ``cache_write(block, scope)`` is short for ``cache_write(block, 0, scope)``.
        """
        first = write_buffer_index
        index, scope = (0, first) if isinstance(first, str) else (first, storage_scope)
        return self._run(cache_write, block, index, scope)

    @step
    def cache_read(self, block: str, read_buffer_index: int, storage_scope: str) -> BlockName:
        """Redirect a block's reads of one input to a copy in another scope; returns the block that makes the copy."""
        return self._run(cache_read, block, read_buffer_index, storage_scope)

    @step
    def cache_inplace(self, block: str, read_buffer_index: int, storage_scope: str) -> list[BlockName]:
        """Run a block on a copy of a buffer that it reads and writes; returns the blocks that copy it in and out."""
        func_name, _ = self.home(block)
        names = self._run(cache_inplace, block, read_buffer_index, storage_scope)
        return [BlockName(name, func_name) for name in names]

    @step
    def reindex(self, block: str, buffer: str | tuple[str, int]) -> BlockName:
        """Redirect a block's accesses of a buffer to a copy indexed by its variables; returns the block that copies.

        buffer: as for ``transform_layout``.
        """
        return self._run(reindex, block, buffer)

    @step
    def rolling_buffer(self, block: str, write_buffer_index: int) -> None:
        """Shrink a buffer that a block writes to a window that advances with a loop; see ``rolling.py``."""
        self._run(rolling_buffer, block, write_buffer_index)

    @step
    def prefetch(
        self, block: str, loop: Var, read_buffer_index: int, distance: int, within: Var | None = None, level: int = 1
    ) -> BlockName:
        """Prefetch what a block will read of a buffer ``distance`` iterations of a loop later; returns a new block.

        within: the loop inside ``loop`` whose iterations prefetch what they will read themselves. level: of cache.
        """
        return self._run(prefetch, block, loop, read_buffer_index, distance, within, level)

    @step
    def set_scope(self, block: str, buffer_index: int, storage_scope: str) -> None:
        """Set the scope of an intermediate buffer that a block writes."""
        self._run(set_scope, block, buffer_index, storage_scope)

    @step
    def storage_align(self, block: str, buffer_index: int, axis: int, factor: int, offset: int) -> None:
        """Pad an intermediate buffer that a block writes so that an axis has a stride of ``offset`` modulo ``factor``.

        Used to avoid bank conflicts in shared memory.
        """
        self._run(storage_align, block, buffer_index, axis, factor, offset)

    @step
    def decompose_reduction(self, block: str, loop: Var) -> BlockName:
        """Move a reduction's ``init`` to a new block before ``loop``, which is returned; ``block`` keeps the update."""
        func_name, name = self.home(block)
        init, update = self._run(decompose_reduction, block, loop)
        self._renamed[func_name, str(name)] = update
        return BlockName(init, func_name)

    @step
    def decompose_padding(self, block: str, loop: Var) -> BlockName:
        """Fill what a padding block writes before ``loop``, in a new block, which is returned; see ``padding.py``."""
        return self._run(decompose_padding, block, loop)

    @step
    def rfactor(self, loop: Var, factor_axis: int) -> BlockName:
        """Factor a reduction into one partial result per iteration of a loop; returns the block that computes them."""
        return self._run(rfactor, loop, factor_axis)

    @step
    def factor_reduction(self, block: str, group: int) -> BlockName:
        """Sum each group of a reduction first, with factors that are constant in a group hoisted; see ``factor.py``."""
        return self._run(factor_reduction, block, group)

    @step
    def pad_einsum(self, block: str, padding: Sequence[int]) -> None:
        """Round the extents of a block's variables up to multiples of ``padding``; see ``pad_einsum.py``."""
        self._run(pad_einsum, block, padding)

    @step
    def blockize(self, loop: Var) -> BlockName:
        """Wrap the loop nest rooted at ``loop``, and its block, in a new block, which is returned."""
        return self._run(blockize, loop)

    @step
    def tensorize(self, loop: Var, intrinsic: str) -> None:
        """Replace the loop nest rooted at ``loop`` by an instruction.

        See ``register_tensor_intrin``, and ``register_script_intrin`` for a replacement by statements.
        """
        script = find_script_intrin(intrinsic)
        if script is not None:
            self._run(tensorize_script, loop, script)
            return
        try:
            row = find_tensor_intrin(intrinsic)
        except MLCError as error:
            raise ScheduleError(f"tensorize: {error.message}") from None
        self._run(tensorize, loop, row)

    @step
    def transform_block_layout(self, block: str, index_map: IndexMap | Callable[..., Any] | str) -> None:
        """Run a block over the indices that a map computes of its variables, as ``lambda i, j: (i * 16 + j,)``."""
        self._run(transform_block_layout, block, _as_index_map("transform_block_layout", index_map))

    @step
    def transform_layout(
        self, block: str, buffer: str | tuple[str, int], index_map: IndexMap | Callable[..., Any] | str
    ) -> None:
        """Store a buffer that a block accesses in another layout; see ``layout.py``.

        buffer: its name, or ``("read", i)`` or ``("write", i)``, one of the regions that the block reads or writes.
        index_map: maps logical to stored indices, e.g. ``lambda n, k: (n // 16, k, n % 16)``.
        """
        self._run(transform_layout, block, buffer, _as_index_map("transform_layout", index_map))


def _as_index_map(step: str, index_map: IndexMap | Callable[..., Any] | str) -> IndexMap:
    if isinstance(index_map, IndexMap):
        return index_map
    try:
        return IndexMap.parse(index_map) if isinstance(index_map, str) else IndexMap.from_func(index_map)
    except IndexMapError as error:
        raise ScheduleError(f"{step}: {error.message}") from error


Schedule.step_names = step_names()
