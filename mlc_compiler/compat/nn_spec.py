"""``nn.spec``: ``mlc_compiler.nn.spec`` with additions."""

from __future__ import annotations

from ..nn import spec
from ..nn.spec import Created, Int, ModuleSpec, Tensor, Tuple

__all__ = ["Created", "Int", "ModuleSpec", "Object", "Tensor", "Tuple"]


def Object(object_type: type) -> spec.Created:
    """The spec of a state that another function of the spec creates, such as a ``PagedKVCache``."""
    return Created(object_type)
