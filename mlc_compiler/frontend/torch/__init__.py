"""PyTorch's models: ``from_exported_program`` (torch.export)."""

from __future__ import annotations

from ..imported import Imported
from ..values import ImportModelError
from .exported_program import from_exported_program

__all__ = ["ImportModelError", "Imported", "from_exported_program"]
