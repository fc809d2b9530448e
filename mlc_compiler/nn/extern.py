"""Functions of object files and C sources that modules call and that are linked into the library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mlc_errors import UsageError

from ..relax.builder import BlockBuilder
from .op.functions import extern
from .tensor import Tensor


class ExternModule:
    """C functions that modules call by name: ``module["symbol"](x, y)``.

    symbols: by name, a function of the arguments that describes the result: a Tensor of the same shape and dtype,
    ``(shape, dtype)``, or a list of them. definition: the path of an object file, or C source; the signature of the
    functions is described in ``codegen/linked.py``. Only for CPUs. Raises UsageError for an unknown symbol.
    """

    def __init__(self, symbols: Mapping[str, Callable[..., Any]], definition: str):
        self.symbols, self.definition = dict(symbols), definition

    def __getitem__(self, symbol: str) -> Callable[..., Any]:
        if symbol not in self.symbols:
            raise UsageError(f"no function {symbol!r} in the module; it has {', '.join(self.symbols) or 'none'}")
        infer = self.symbols[symbol]

        def call(*args: Any) -> Tensor | tuple[Tensor, ...]:
            """Trace a call; args: tensors, sizes and strings."""
            BlockBuilder.current().link(symbol, self.definition)
            result: Tensor | tuple[Tensor, ...] = extern(symbol, args, infer(*args))
            return result

        return call


class ObjectModule(ExternModule):
    """The functions of an object file."""

    def __init__(self, symbols: Mapping[str, Callable[..., Any]], filepath: str | Path):
        path = Path(filepath)
        if path.suffix != ".o":
            raise UsageError(f"the object file is {path.name}; expected a name that ends in .o")
        super().__init__(symbols, str(path.resolve()))


class SourceModule(ExternModule):
    """The functions of a C source file, which is compiled with the module."""

    def __init__(self, symbols: Mapping[str, Callable[..., Any]], source_code: str | Path, source_format: str = "c"):
        if source_format != "c":
            raise UsageError(f"source_format is {source_format!r}; expected 'c'")
        super().__init__(symbols, source_code.read_text() if isinstance(source_code, Path) else source_code)
