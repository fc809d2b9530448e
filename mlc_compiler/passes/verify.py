"""Verify modules between passes."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.module import IRModule
from ..verifier import VerifyError, verify
from .base import Pass


@dataclass(frozen=True)
class Verify(Pass):
    """Check that the module is well formed; the module does not change.

    after: the step that produced the module, for the message. Raises VerifyError with function, block and buffer.
    """

    name = "verify"
    after: str = ""

    def run(self, mod: IRModule) -> IRModule:
        try:
            verify(mod)
        except VerifyError as error:
            error.where = (*error.where, *([f"the module after {self.after}"] if self.after else []))
            raise
        return mod
