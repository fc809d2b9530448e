"""Importer of ONNX models: ``from_onnx``. Works on, and imports, the package onnx."""

from __future__ import annotations

from ..imported import Imported
from ..values import ImportModelError
from .model import from_onnx

__all__ = ["ImportModelError", "Imported", "from_onnx"]
