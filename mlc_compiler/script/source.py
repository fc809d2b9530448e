"""The text being parsed, and errors with a location in it."""

from __future__ import annotations

import ast
import os
import textwrap
import warnings
from dataclasses import dataclass
from threading import Lock

from mlc_errors import MLCError

from ..ir.expr import PrimExpr
from ..ir.recursion import deep_recursion

# ``warnings.catch_warnings`` changes global state of the process, so a lock guards it.
_warning_filters = Lock()
os.register_at_fork(
    before=_warning_filters.acquire,
    after_in_parent=_warning_filters.release,
    after_in_child=_warning_filters.release,
)


class ScriptError(MLCError):
    """An error in TVMScript; ``where`` holds the file, line and column, the line itself and a caret below it."""

    code = "MLC8"


@dataclass(frozen=True)
class Source:
    """Script text and its location: ``name`` is its file, ``first_line`` and ``indent`` its position there."""

    text: str
    name: str = "<script>"
    first_line: int = 1
    indent: int = 0

    @staticmethod
    def dedented(text: str, name: str, first_line: int = 1) -> Source:
        """Remove the common indentation of a text, such as that of a nested definition."""
        clean = textwrap.dedent(text)
        lines = zip(text.splitlines(), clean.splitlines(), strict=True)
        indent = next((len(given) - len(line) for given, line in lines if line), 0)
        return Source(clean, name, first_line, indent)

    @deep_recursion
    def parse(self) -> ast.Module:
        """Parse to Python's syntax tree. Raises ScriptError with the location of a syntax error."""
        try:
            with _warning_filters, warnings.catch_warnings():
                warnings.simplefilter("ignore", SyntaxWarning)
                return _SplitTupleAssignments().visit(ast.parse(self.text))
        except SyntaxError as error:
            line, column = error.lineno or 1, (error.offset or 1) - 1
            raise self._error_at(line, column, column + 1, f"not valid Python syntax: {error.msg}", None) from error
        except (RecursionError, MemoryError) as error:
            raise self._error_at(1, 0, 1, "an expression nests too deeply", None) from error

    def error(self, node: ast.AST, message: str, hint: str | None = None) -> ScriptError:
        """Create a ScriptError located at ``node``."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        last = getattr(node, "end_lineno", line) == line
        end = getattr(node, "end_col_offset", column + 1) if last else len(self._line(line))
        return self._error_at(line, column, end, message, hint)

    def _line(self, line: int) -> str:
        lines = self.text.splitlines()
        return lines[line - 1] if 0 < line <= len(lines) else ""

    def _error_at(self, line: int, column: int, end: int, message: str, hint: str | None) -> ScriptError:
        text = self._line(line)
        before = text.encode()[:column].decode(errors="ignore")
        marked = text.encode()[column:end].decode(errors="ignore")
        caret = " " * len(before) + "^" * max(1, len(marked))
        place = f"{self.name}, line {self.first_line + line - 1}, column {self.indent + len(before) + 1}"
        strip = len(text) - len(text.lstrip())
        return ScriptError(message, where=(place, "  " + text[strip:], "  " + caret[strip:]), hint=hint)


def describe(value: object) -> str:
    """Describe a value in messages: expressions and objects by kind (``a int64 expression``), others by repr."""
    if isinstance(value, PrimExpr):
        return f"a {value.dtype} expression"
    return f"{value!r}" if isinstance(value, str | int | float | bool | type(None)) else f"a {type(value).__name__}"


class _SplitTupleAssignments(ast.NodeTransformer):
    """Splits ``n, m = T.int64(), T.int64()`` into one assignment per name, in order."""

    def visit_Assign(self, node: ast.Assign) -> ast.Assign | list[ast.Assign]:
        target, value = node.targets[0], node.value
        if not (isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)):
            return node
        if len(target.elts) != len(value.elts):
            return node
        pairs = zip(target.elts, value.elts, strict=True)
        return [ast.copy_location(ast.Assign([name], single), node) for name, single in pairs]
