"""``nn.spec`` of TVM: all of ``mlc_compiler.nn.spec``, and these."""

from __future__ import annotations

from ..nn.spec import Int, ModuleSpec, Object, Tensor

__all__ = ["Int", "ModuleSpec", "Object", "Tensor"]
