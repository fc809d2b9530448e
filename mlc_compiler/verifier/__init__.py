"""Verifier: checks the invariants of well-formed modules, on which passes and code generation rely."""

from __future__ import annotations

from .errors import VerifyError
from .module import verify

__all__ = ["VerifyError", "verify"]
