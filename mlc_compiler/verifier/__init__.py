"""Checks that a module is well formed: what passes and code generation rely on."""

from __future__ import annotations

from .errors import VerifyError
from .module import verify

__all__ = ["VerifyError", "verify"]
