"""``tvm.tir``: variables and schedules of tensor functions."""

from __future__ import annotations

from ..ir.expr import Var
from ..tir.nodes import PrimFunc
from ..tir.schedule import Schedule
from . import tir_transform as transform

__all__ = ["PrimFunc", "Schedule", "Var", "transform"]
