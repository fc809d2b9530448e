"""``tvm.transform``: passes as functions of modules, in sequence, in a context.

Some of TVM's passes lower modules for its virtual machine. Here the pipeline does their work, which ``build``
always runs afterwards; ``done_by_build`` creates no-ops for such passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mlc_errors import MLCError

from ..ir.module import IRModule
from ..passes.base import Pass

ModuleFunction = Callable[[IRModule, "PassContext"], IRModule]


@dataclass(frozen=True)
class PassInfo:
    """A pass's name, and the minimum ``opt_level`` of a context at which ``Sequential`` runs it."""

    name: str
    opt_level: int = 0


class PassContext:
    """Configuration of passes run inside ``with PassContext(…)``.

    opt_level: maximum level of the passes that ``Sequential`` runs. disabled_pass: names of passes to skip.
    instruments: objects with ``run_before_pass(mod, info)`` and ``run_after_pass(mod, info)``, either of which may be
    missing.
    """

    _entered: ClassVar[list[PassContext]] = []

    def __init__(self, opt_level: int = 2, disabled_pass: Sequence[str] = (), instruments: Sequence[Any] = ()):
        self.opt_level, self.disabled_pass, self.instruments = opt_level, tuple(disabled_pass), tuple(instruments)

    @staticmethod
    def current() -> PassContext:
        """The innermost context, or a default one."""
        return PassContext._entered[-1] if PassContext._entered else PassContext()

    def __enter__(self) -> PassContext:
        self._entered.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._entered.pop()

    def pass_enabled(self, info: PassInfo) -> bool:
        """Whether ``Sequential`` runs a pass."""
        return info.name not in self.disabled_pass and info.opt_level <= self.opt_level

    def run(self, info: PassInfo, function: ModuleFunction, mod: IRModule) -> IRModule:
        """Run a pass, and call the instruments before and after it."""
        self._call("run_before_pass", mod, info)
        result = function(mod, self)
        if not isinstance(result, IRModule):
            raise MLCError(f"pass {info.name}: got a {type(result).__name__}; expected an IRModule")
        self._call("run_after_pass", result, info)
        return result

    def _call(self, event: str, mod: IRModule, info: PassInfo) -> None:
        for instrument in self.instruments:
            getattr(instrument, event, lambda *_: None)(mod, info)


@dataclass(frozen=True)
class ModulePass:
    """A function from module to module, called as ``step(mod)``."""

    function: ModuleFunction
    info: PassInfo

    def __call__(self, mod: IRModule) -> IRModule:
        return PassContext.current().run(self.info, self.function, mod)


def module_pass(function: ModuleFunction | type | None = None, opt_level: int = 0, name: str | None = None) -> Any:
    """Decorator: the pass of a function ``(mod, context) -> mod``, or of a class with it as ``transform_module``.

    The decorated class is called with the arguments of its ``__init__`` and returns a pass.
    """

    def decorated(f: Any) -> Any:
        info = PassInfo(name or f.__name__, opt_level)
        if not isinstance(f, type):
            return ModulePass(f, info)
        return lambda *args, **keywords: ModulePass(f(*args, **keywords).transform_module, info)

    return decorated if function is None else decorated(function)


def Sequential(passes: Sequence[ModulePass], opt_level: int = 0, name: str = "sequential") -> ModulePass:
    """A pass that runs passes in order, except those that the context disables."""

    def run(mod: IRModule, context: PassContext) -> IRModule:
        for step in passes:
            mod = step(mod) if context.pass_enabled(step.info) else mod
        return mod

    return ModulePass(run, PassInfo(name, opt_level))


def own(name: str, *steps: Pass) -> ModulePass:
    """Run this compiler's passes, in order, under TVM's name ``name``."""

    def run(mod: IRModule, _: PassContext) -> IRModule:
        for step in steps:
            mod = step.run(mod)
        return mod

    return ModulePass(run, PassInfo(name))


def done_by_build(name: str, step: str) -> ModulePass:
    """A no-op for a TVM pass whose work is done by the pass ``step`` during ``build``."""
    assert step
    return ModulePass(lambda mod, _: mod, PassInfo(name))
