"""``tvm.transform``: passes as functions of modules, in sequence, in a context.

Some of TVM's passes prepare its virtual machine. What they do is done by this project's own pipeline, which ``build``
always runs afterwards: ``done_by_build`` makes such passes, which leave the module as it is.
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
    """A pass's name, and the lowest ``opt_level`` of a context in which ``Sequential`` runs it."""

    name: str
    opt_level: int = 0


class PassContext:
    """How passes run inside ``with PassContext(…)``.

    opt_level: of the passes that ``Sequential`` runs. disabled_pass: names of passes that are skipped. instruments:
    objects with ``run_before_pass(mod, info)`` and ``run_after_pass(mod, info)``, either of which may be missing.
    """

    _entered: ClassVar[list[PassContext]] = []

    def __init__(self, opt_level: int = 2, disabled_pass: Sequence[str] = (), instruments: Sequence[Any] = ()):
        self.opt_level, self.disabled_pass, self.instruments = opt_level, tuple(disabled_pass), tuple(instruments)

    @staticmethod
    def current() -> PassContext:
        """The innermost context, or one of defaults."""
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
        """The module after a pass, with the instruments called around it."""
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


def module_pass(function: ModuleFunction | None = None, opt_level: int = 0, name: str | None = None) -> Any:
    """Decorator: the pass of a function ``(mod, context) -> mod``."""
    made = lambda f: ModulePass(f, PassInfo(name or f.__name__, opt_level))  # noqa: E731
    return made if function is None else made(function)


def Sequential(passes: Sequence[ModulePass], opt_level: int = 0, name: str = "sequential") -> ModulePass:
    """The passes in order, but for those that the context disables."""

    def run(mod: IRModule, context: PassContext) -> IRModule:
        for step in passes:
            mod = step(mod) if context.pass_enabled(step.info) else mod
        return mod

    return ModulePass(run, PassInfo(name, opt_level))


def own(name: str, *steps: Pass) -> ModulePass:
    """This project's passes, in order, as one of TVM's name."""

    def run(mod: IRModule, _: PassContext) -> IRModule:
        for step in steps:
            mod = step.run(mod)
        return mod

    return ModulePass(run, PassInfo(name))


def done_by_build(name: str, step: str) -> ModulePass:
    """A pass of TVM whose work the pass ``step`` of ``build`` does; the module stays as it is."""
    assert step
    return ModulePass(lambda mod, _: mod, PassInfo(name))
