"""Importer of PyTorch models: ``from_exported_program``, ``from_fx``, ``torch.compile(model, backend="mlc")``.

Importing this package registers the back end.
"""

from __future__ import annotations

from ..imported import Imported
from ..values import ImportModelError
from .dynamo import compile_graph
from .exported_program import from_exported_program
from .fx import from_fx

__all__ = ["ImportModelError", "Imported", "compile_graph", "from_exported_program", "from_fx"]
