"""Text form of the IR: printer and parser, and the names ``I``, ``T``, ``R`` for TVMScript in Python source."""

from __future__ import annotations

from .namespace import I, R, T
from .parser import expand, parse
from .printer import ScriptText, script, to_text
from .source import ScriptError

__all__ = ["I", "R", "ScriptError", "ScriptText", "T", "expand", "parse", "script", "to_text"]
