"""The module that a schedule transforms: lookup of blocks and loops, and application of steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.expr import Var
from ...ir.module import IRModule
from ..nodes import PrimFunc
from .caching import cache_read, cache_write
from .compute_at import compute_at
from .factor import factor_reduction
from .inline import compute_inline
from .inplace import cache_inplace
from .legality import check_independent, is_concurrent
from .loops import reorder
from .pad_einsum import pad_einsum
from .padding import decompose_padding
from .reduction import decompose_reduction
from .reindex import reindex
from .reverse_compute_at import reverse_compute_at
from .reverse_inline import reverse_compute_inline
from .rfactor import rfactor
from .rolling import rolling_buffer
from .trace import BlockName
from .tree import ScheduleError, block_names, has_loop, loops_in

# Steps that may introduce dependences between iterations of enclosing concurrent loops.
MOVES = (
    *(reorder, compute_at, reverse_compute_at, compute_inline, reverse_compute_inline),
    *(cache_read, cache_write, decompose_reduction, rfactor, factor_reduction, pad_einsum),
    *(reindex, cache_inplace, decompose_padding, rolling_buffer),
)


class WorkingModule:
    """A module whose tensor functions are replaced step by step.

    mod: an IRModule, or one tensor function. func_name: the working function, searched first for blocks; by
    default the only one, or ``main``.
    """

    def __init__(self, mod: IRModule | PrimFunc, func_name: str | None = None):
        if isinstance(mod, PrimFunc):
            func_name = func_name or str(mod.attrs.get("global_symbol", "main"))
            mod = IRModule({func_name: mod})
        self._mod = mod
        self._renamed: dict[tuple[str, str], str] = {}
        names = list(mod.of_type(PrimFunc))
        self.func_name = func_name or (names[0] if len(names) == 1 else "main")
        if func_name is not None:
            self.work_on(func_name)

    @property
    def mod(self) -> IRModule:
        return self._mod

    @property
    def func(self) -> PrimFunc:
        """The working function."""
        return self.function(self.func_name)

    @func.setter
    def func(self, func: PrimFunc) -> None:
        self._mod = self._mod.with_function(self.func_name, func)

    def work_on(self, func_name: str) -> None:
        """Set the working function, which is searched first for blocks."""
        self.function(func_name)
        self.func_name = func_name

    def function(self, name: str) -> PrimFunc:
        functions = self._mod.of_type(PrimFunc)
        if name not in functions:
            raise ScheduleError(f"no tensor function {name!r}; the module has {', '.join(functions) or 'none'}")
        return functions[name]

    def _in_order(self) -> list[tuple[str, PrimFunc]]:
        """All tensor functions, the working one first."""
        functions = self._mod.of_type(PrimFunc)
        return sorted(functions.items(), key=lambda item: item[0] != self.func_name)

    def home(self, at: Var | str) -> tuple[str, Var | str]:
        """The function that contains a loop or block, and the loop or the block's current name."""
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
        present = block_names(self.function(func_name))
        while name not in present:
            if (func_name, name) not in self._renamed:
                return None
            name = self._renamed[func_name, name]
        return name

    def _run(self, step: Callable[..., Any], at: Var | str, *args: Any, loops: Sequence[Var] | None = None) -> Any:
        """Apply a step to the function that contains ``at``; returns the step's second result, if any."""
        func_name, func, value = self._applied(step, at, *args, loops=loops)
        self._mod = self._mod.with_function(func_name, func)
        return BlockName(value, func_name) if isinstance(value, str) else value

    def _is_legal(self, step: Callable[..., Any], at: Var | str, *args: Any) -> bool:
        """Whether a step can be applied."""
        try:
            self._applied(step, at, *args)
        except ScheduleError:
            return False
        return True

    def _applied(
        self, step: Callable[..., Any], at: Var | str, *args: Any, loops: Sequence[Var] | None = None
    ) -> tuple[str, PrimFunc, Any]:
        """The function that contains ``at``, by name, after a step, and the step's other result."""
        func_name, at = self.home(at)
        before = self.function(func_name)
        result = step(before, loops or at, *args)
        func, value = result if isinstance(result, tuple) else (result, None)
        if step in MOVES:
            _check_concurrent(before, func)
        return func_name, func, value

    def _run_all(self, step: Callable[..., Any], loops: Sequence[Var], *args: Any) -> Any:
        """Apply a step to several loops of one function; see ``_run``."""
        if not loops:
            raise ScheduleError(f"{step.__name__}: got no loops")
        return self._run(step, loops[0], *args, loops=loops)


def _check_concurrent(before: PrimFunc, after: PrimFunc) -> None:
    """Repeat the legality check of the concurrent loops that a step changed."""
    known = {id(lp) for lp in loops_in(before.body)}
    for loop in loops_in(after.body):
        if is_concurrent(loop) and id(loop) not in known:
            check_independent(after, loop.var, loop.kind, loop.thread)
