"""Text form of the IR: printer, parser, verifier; the names ``I``, ``T``, ``R`` for decorated Python source."""

from __future__ import annotations

from .namespace import I, R, T
from .parser import parse
from .printer import ScriptText, script, to_text
from .source import ScriptError
from .verify import verify
from .verify_errors import VerifyError

__all__ = ["I", "R", "ScriptError", "ScriptText", "T", "VerifyError", "parse", "script", "to_text", "verify"]
