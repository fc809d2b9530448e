"""Schedule: tensor functions and the steps that reshape their loops without changing what they compute.

Blocks are named by strings, loops by their loop variables. A step that could change a result, or of which that is not
known, raises ScheduleError and leaves the function as it was. Sums may be reassociated. Steps are noted in ``trace``.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from random import Random
from typing import Any

from ...ir.expr import ExprLike, IntImm, Var
from ...ir.module import IRModule
from ...ir.visitor import free_vars
from ..intrinsics import INTRINSICS
from ..nodes import PARALLEL, THREAD, UNROLLED, VECTORIZED, Block, Buffer, PrimFunc
from .blockize import blockize
from .caching import cache_read, cache_write, set_scope
from .compute_at import compute_at
from .factor import factor_reduction
from .inline import compute_inline
from .layout import tile_layout
from .legality import check_independent, is_concurrent
from .loops import annotate, fuse, reorder, set_kind, split, unannotate
from .partition import merge, partition
from .reduction import decompose_reduction
from .reverse_compute_at import reverse_compute_at
from .reverse_inline import reverse_compute_inline
from .rfactor import rfactor
from .sampling import choose_category, choose_tiling
from .tensorize import tensorize
from .trace import BlockName, Trace
from .tree import (
    ScheduleError,
    block_names,
    block_path,
    child_blocks,
    consumers,
    find_block,
    find_loop,
    has_loop,
    loops_above,
    loops_in,
    producers,
)

# Steps that may bring work of several iterations of the loops around together.
MOVES = (
    *(reorder, compute_at, reverse_compute_at, compute_inline, reverse_compute_inline),
    *(cache_read, cache_write, decompose_reduction, rfactor, factor_reduction),
)
_POSITIONAL = frozenset({"name", "block", "loop", "loops", "target", "buffer"})
_step_names: set[str] = set()


def _step(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method whose calls are noted in the trace: blocks and loops by position, the rest by keyword."""
    signature = inspect.signature(method)
    _step_names.add(method.__name__)

    @wraps(method)
    def noted(self: Schedule, *args: Any, **keywords: Any) -> Any:
        bound = signature.bind(self, *args, **keywords)
        given, named = self._encoded(signature, bound.arguments)
        result = method(self, *args, **keywords)
        if "decision" in signature.parameters:
            result, named["decision"] = result
        self.trace.record(method.__name__, given, named, result)
        return result

    return noted


class Schedule:
    """Steps over the tensor functions of a module; ``mod`` and ``func`` are the current state.

    mod: an IRModule, or one tensor function. func_name: the function that blocks are looked for in first; the only
    one, or ``main``, by default. seed: of the random choices.
    """

    step_names: frozenset[str]

    def __init__(self, mod: IRModule | PrimFunc, func_name: str | None = None, *, seed: int = 0):
        if isinstance(mod, PrimFunc):
            func_name = func_name or str(mod.attrs.get("global_symbol", "main"))
            mod = IRModule({func_name: mod})
        self._mod = mod
        names = list(mod.of_type(PrimFunc))
        self.func_name = func_name or (names[0] if len(names) == 1 else "main")
        if func_name is not None and func_name not in names:
            raise ScheduleError(f"no tensor function {func_name!r}; the module has {', '.join(names) or 'none'}")
        self.trace = Trace()
        self._random = Random(seed)
        self._renamed: dict[tuple[str, str], str] = {}

    # -- state --------------------------------------------------------------------------------------------------

    @property
    def mod(self) -> IRModule:
        return self._mod

    @property
    def func(self) -> PrimFunc:
        """The working function."""
        return self._function(self.func_name)

    @func.setter
    def func(self, func: PrimFunc) -> None:
        self._mod = self._mod.update_func(self.func_name, func)

    def copy(self, seed: int = 0) -> Schedule:
        """An independent schedule in the same state."""
        other = copy.copy(self)
        other.trace, other._random, other._renamed = self.trace.copy(), Random(seed), dict(self._renamed)
        return other

    def _function(self, name: str) -> PrimFunc:
        functions = self._mod.of_type(PrimFunc)
        if name not in functions:
            raise ScheduleError(f"no tensor function {name!r}; the module has {', '.join(functions) or 'none'}")
        return functions[name]

    def _in_order(self) -> list[tuple[str, PrimFunc]]:
        """All tensor functions, the working one first."""
        functions = self._mod.of_type(PrimFunc)
        return sorted(functions.items(), key=lambda item: item[0] != self.func_name)

    def _home(self, at: Var | str) -> tuple[str, Var | str]:
        """The function that a loop or block is in, and the block's present name."""
        if isinstance(at, Var):
            found = next((name for name, f in self._in_order() if has_loop(f, at)), self.func_name)
            return found, at
        candidates = [at.func_name] if isinstance(at, BlockName) else [name for name, _ in self._in_order()]
        for func_name in candidates:
            current = self._current(func_name, str(at))
            if current is not None:
                return func_name, current
        return candidates[0], str(at)

    def _current(self, func_name: str, name: str) -> str | None:
        present = block_names(self._function(func_name))
        while name not in present:
            if (func_name, name) not in self._renamed:
                return None
            name = self._renamed[func_name, name]
        return name

    def _run(self, step: Callable[..., Any], at: Var | str, *args: Any, loops: Sequence[Var] | None = None) -> Any:
        """Replace the function that ``at`` is in by what a step makes of it; gives what else the step returns."""
        func_name, at = self._home(at)
        before = self._function(func_name)
        result = step(before, loops or at, *args)
        func, value = result if isinstance(result, tuple) else (result, None)
        if step in MOVES:
            _check_concurrent(before, func)
        self._mod = self._mod.update_func(func_name, func)
        return BlockName(value, func_name) if isinstance(value, str) else value

    def _run_all(self, step: Callable[..., Any], loops: Sequence[Var], *args: Any) -> Any:
        """As ``_run``, for a step on several loops of one function."""
        if not loops:
            raise ScheduleError(f"{step.__name__}: got no loops")
        return self._run(step, loops[0], *args, loops=loops)

    def _encoded(self, signature: inspect.Signature, arguments: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a step as data. Loops that no step gave are named by an additional ``get_loops``."""
        given: list[Any] = []
        named: dict[str, Any] = {}
        for name, value in arguments.items():
            parameter = signature.parameters[name]
            if name == "self" or (parameter.default is not parameter.empty and value == parameter.default):
                continue
            for item in value if isinstance(value, list | tuple) else (value,):
                self._introduce(item)
            encoded = self.trace.encode(value)
            if parameter.kind is parameter.VAR_POSITIONAL:
                given += encoded
            elif name in _POSITIONAL:
                given.append(encoded)
            else:
                named[name] = encoded
        return given, named

    def _introduce(self, value: Any) -> None:
        if not isinstance(value, Var) or self.trace.knows(value):
            return
        func_name, _ = self._home(value)
        func = self._function(func_name)
        if has_loop(func, value):
            blocks = child_blocks(find_loop(func, value))
            if not blocks:
                raise ScheduleError(f"loop {value.name!r} holds no block: steps are about loops around blocks")
            self.get_loops(BlockName(blocks[0], func_name))

    # -- looking ------------------------------------------------------------------------------------------------

    @_step
    def get_block(self, name: str, func_name: str | None = None) -> BlockName:
        """The block of that name. Raises ScheduleError listing the blocks there are."""
        func_name = func_name or (name.func_name if isinstance(name, BlockName) else self.func_name)
        return BlockName(find_block(self._function(func_name), name).block.name, func_name)

    @_step
    def get_loops(self, block: str) -> list[Var]:
        """The loops around a block, outermost first."""
        func_name, name = self._home(block)
        return [lp.var for lp in loops_above(block_path(self._function(func_name), str(name)))]

    @_step
    def get_child_blocks(self, target: Var | str) -> list[BlockName]:
        """The blocks directly inside a loop or a block, in order."""
        func_name, at = self._home(target)
        func = self._function(func_name)
        node = find_loop(func, at) if isinstance(at, Var) else find_block(func, at)
        return [BlockName(name, func_name) for name in child_blocks(node)]

    def get_blocks(self) -> list[str]:
        """All blocks of the working function but its root, in order of execution."""
        return block_names(self.func)

    def block(self, name: str) -> Block:
        func_name, current = self._home(name)
        return find_block(self._function(func_name), str(current)).block

    def extent(self, loop: Var) -> Any:
        """The extent of a loop: an int when it is constant."""
        extent = find_loop(self._function(self._home(loop)[0]), loop).extent
        return extent.value if isinstance(extent, IntImm) else extent

    def size(self, name: str) -> Var:
        """A symbolic size or scalar parameter of the working function, by name."""
        candidates = [*free_vars([b.shape for b in self.func.buffers]), *self.func.params]
        for var in candidates:
            if isinstance(var, Var) and var.name == name:
                return var
        raise ScheduleError(f"no size {name!r} in function {self.func_name!r}")

    def get_producers(self, buffer: Buffer) -> list[str]:
        return producers(self.func, buffer)

    def get_consumers(self, buffer: Buffer) -> list[str]:
        return consumers(self.func, buffer)

    # -- choices ------------------------------------------------------------------------------------------------

    @_step
    def sample_perfect_tile(
        self, loop: Var, n: int, max_innermost_factor: int = 16, decision: Sequence[int] | None = None
    ) -> Any:
        """``n`` random factors of a loop's extent, the last at most ``max_innermost_factor``; or ``decision``."""
        func = self._function(self._home(loop)[0])
        factors = choose_tiling(self._random, find_loop(func, loop), n, max_innermost_factor, decision)
        return factors, [int(f) for f in factors]

    @_step
    def sample_categorical(self, candidates: Sequence[int], probs: Sequence[float], decision: int | None = None) -> Any:
        """One of some integers by their probabilities; ``decision``: the position of the one to take."""
        return choose_category(self._random, candidates, probs, decision)

    # -- loops --------------------------------------------------------------------------------------------------

    @_step
    def split(self, loop: Var, factors: Sequence[ExprLike | None]) -> list[Var]:
        """One loop into ``len(factors)`` nested loops; one factor may be None (what is left).

        Where the factors exceed the extent, a predicate guards the blocks inside.
        """
        return self._run(split, loop, factors)

    @_step
    def fuse(self, *loops: Var) -> Var:
        """Directly nested loops into one."""
        return self._run_all(fuse, loops)

    @_step
    def reorder(self, *loops: Var) -> None:
        """Loops of a perfect nest in the given order; loops between them stay."""
        self._run_all(reorder, loops)

    @_step
    def parallel(self, loop: Var) -> None:
        """Divide the iterations over the worker team."""
        self._run(set_kind, loop, PARALLEL)

    @_step
    def vectorize(self, loop: Var) -> None:
        """Run the iterations as SIMD lanes."""
        self._run(set_kind, loop, VECTORIZED)

    @_step
    def unroll(self, loop: Var) -> None:
        """Write the iterations out one after the other."""
        self._run(set_kind, loop, UNROLLED)

    @_step
    def bind(self, loop: Var, thread_axis: str) -> None:
        """Let a GPU index (``blockIdx.x``, ``threadIdx.y`` …) run the loop."""
        self._run(set_kind, loop, THREAD, thread_axis)

    @_step
    def annotate(self, target: Var | str, ann_key: str, ann_val: Any) -> None:
        """Note a value on a loop or a block."""
        self._run(annotate, target, ann_key, ann_val)

    @_step
    def unannotate(self, target: Var | str, ann_key: str) -> None:
        """Remove what ``annotate`` noted."""
        self._run(unannotate, target, ann_key)

    @_step
    def partition(self, loops: Sequence[Var], points: Sequence[ExprLike]) -> tuple[list[list[Var]], list[str]]:
        """The function once for each part of one loop of each top-level nest; see ``partition.py``."""
        return self._run_all(partition, tuple(loops), points)

    @_step
    def merge(self, *loops: Var) -> Var:
        """Neighbouring loops of equal extent, with independent iterations, into one."""
        return self._run_all(merge, loops)

    # -- blocks -------------------------------------------------------------------------------------------------

    @_step
    def compute_inline(self, block: str) -> None:
        """Replace reads of an element-wise block's result by its formula."""
        self._run(compute_inline, block)

    @_step
    def reverse_compute_inline(self, block: str) -> None:
        """Move an element-wise block into the producer of its input."""
        self._run(reverse_compute_inline, block)

    @_step
    def compute_at(self, block: str, loop: Var) -> None:
        """Compute a producer inside a loop, just what each iteration reads."""
        self._run(compute_at, block, loop)

    @_step
    def reverse_compute_at(self, block: str, loop: Var) -> None:
        """Run a consumer inside a loop, on just what each iteration produced."""
        self._run(reverse_compute_at, block, loop)

    @_step
    def cache_write(self, block: str, write_buffer_index: int | str = 0, storage_scope: str = "local") -> BlockName:
        """Let a block write to a buffer of another scope first; gives the name of the block that copies it out.

        ``cache_write(block, scope)`` stands for ``cache_write(block, 0, scope)``.
        """
        first = write_buffer_index
        index, scope = (0, first) if isinstance(first, str) else (first, storage_scope)
        return self._run(cache_write, block, index, scope)

    @_step
    def cache_read(self, block: str, read_buffer_index: int, storage_scope: str) -> BlockName:
        """Let a block read one input from a copy in another scope; gives the name of the block that copies it in."""
        return self._run(cache_read, block, read_buffer_index, storage_scope)

    @_step
    def set_scope(self, block: str, buffer_index: int, storage_scope: str) -> None:
        """Put an intermediate buffer that a block writes into other memory."""
        self._run(set_scope, block, buffer_index, storage_scope)

    @_step
    def decompose_reduction(self, block: str, loop: Var) -> BlockName:
        """Initialise a reduction in a block of its own before ``loop``; gives its name. ``block`` is now the update."""
        func_name, name = self._home(block)
        init, update = self._run(decompose_reduction, block, loop)
        self._renamed[func_name, str(name)] = update
        return BlockName(init, func_name)

    @_step
    def rfactor(self, loop: Var, factor_axis: int) -> BlockName:
        """Partial results of a reduction for each iteration of a loop; gives the block that computes them."""
        return self._run(rfactor, loop, factor_axis)

    @_step
    def factor_reduction(self, block: str, group: int) -> BlockName:
        """Sum each group of a reduction first, factors that are constant within a group outside; see ``factor.py``."""
        return self._run(factor_reduction, block, group)

    @_step
    def blockize(self, loop: Var) -> BlockName:
        """Make the nest from ``loop`` inwards a block around the block that it holds; gives its name."""
        return self._run(blockize, loop)

    @_step
    def tensorize(self, loop: Var, intrinsic: str) -> None:
        """Replace the nest from ``loop`` inwards by a hardware instruction of the table in ``tir/intrinsics.py``."""
        if intrinsic not in INTRINSICS:
            raise ScheduleError(f"tensorize: no instruction {intrinsic!r}; there are {', '.join(INTRINSICS)}")
        self._run(tensorize, loop, INTRINSICS[intrinsic])

    @_step
    def tile_layout(self, buffer: Buffer | str, axis: int, factor: int) -> Buffer:
        """Store a parameter in tiles of one axis, tile innermost; see ``layout.py``."""
        name = buffer if isinstance(buffer, str) else buffer.name
        chosen = buffer if isinstance(buffer, Buffer) else next((b for b in self.func.buffers if b.name == name), None)
        if chosen is None:
            raise ScheduleError(f"tile_layout: {name!r} is no parameter of the function")
        self.func, tiled = tile_layout(self.func, chosen, axis, factor)
        return tiled


Schedule.step_names = frozenset(_step_names)


def _check_concurrent(before: PrimFunc, after: PrimFunc) -> None:
    """Loops that run concurrently must still be independent inside where a step changed them."""
    known = {id(lp) for lp in loops_in(before.body)}
    for loop in loops_in(after.body):
        if is_concurrent(loop) and id(loop) not in known:
            check_independent(after, loop.var, loop.kind)
