"""Models of ONNX: ``from_onnx``. Works on the objects of the package onnx, which it imports."""

from __future__ import annotations

from ..imported import Imported
from ..values import ImportModelError
from .model import from_onnx

__all__ = ["ImportModelError", "Imported", "from_onnx"]
