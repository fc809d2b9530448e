"""``relax.pipeline``: named pipelines for ``relax.build``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlc_errors import MLCError

from ..ir.module import IRModule
from . import relax_transform as t
from .transforms import Sequential

Pipeline = Callable[[IRModule], IRModule]
_PIPELINES: dict[str, Callable[..., Pipeline]] = {}


def register_pipeline(name: str) -> Callable[[Callable[..., Pipeline]], Callable[..., Pipeline]]:
    """Decorator: register a function that creates a pipeline. Raises MLCError for a name that is taken."""

    def register(factory: Callable[..., Pipeline]) -> Callable[..., Pipeline]:
        if name in _PIPELINES:
            raise MLCError(f"register_pipeline: the pipeline {name!r} is registered already")
        _PIPELINES[name] = factory
        return factory

    return register


def get_pipeline(name: str = "zero", **options: Any) -> Pipeline:
    """Create the pipeline of that name with ``options``. Raises MLCError for an unknown name."""
    if name not in _PIPELINES:
        raise MLCError(f"get_pipeline: no pipeline {name!r}; there are {', '.join(_PIPELINES)}")
    return _PIPELINES[name](**options)


@register_pipeline("zero")
def zero_pipeline() -> Pipeline:
    """The default pipeline: legalization, constant folding, fusion and dead code elimination."""
    return Sequential(
        [t.LegalizeOps(), t.AnnotateTIROpPattern(), t.FoldConstant(), t.FuseOps(), t.FuseTIR(), t.DeadCodeElimination()]
    )
