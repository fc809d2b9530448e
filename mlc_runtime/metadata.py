"""The metadata of a compiled library: JSON in the symbol ``__mlc_metadata``, and typed views of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from mlc_errors import MLCError, UnsupportedError
from mlc_runtime.elf import read_data_symbol

METADATA_SYMBOL = "__mlc_metadata"
FORMAT = "mlc-lib-3"

T = TypeVar("T")


@dataclass(frozen=True)
class TensorSpec:
    """An argument or result. A size is a number, a symbolic size's name, or an expression such as ``n * 2 + 1``.

    written: the function writes into this argument. table: it holds addresses of tensors, and is in host memory.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    written: bool = False
    table: bool = False

    def __str__(self) -> str:
        return f"{self.dtype} [{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class ScalarSpec:
    """A scalar argument; ``size``: the symbolic size that it defines, if any."""

    name: str
    dtype: str
    size: str | None = None

    def __str__(self) -> str:
        return self.dtype


# Arguments: nested positions of flat arguments. Result: {"output": i}, {"input": i}, or computed from the symbolic
# sizes: {"value": size}, {"shape": [size, …]}.
Arguments = int | list["Arguments"]
Result = dict[str, int | str | list[int | str]] | list["Result"]


@dataclass(frozen=True)
class FunctionSpec:
    """Flat inputs and outputs of a function; ``arguments`` and ``result`` map the caller's tuples to them."""

    name: str
    inputs: tuple[TensorSpec | ScalarSpec, ...]
    outputs: tuple[TensorSpec, ...]
    arguments: list[Arguments] | None = None
    result: Result | None = None


def read_metadata(path: str | Path) -> dict:
    """The metadata of the library at `path`, without running it.

    Raises MLCError when the file is not such a library, UnsupportedError when it has another metadata format.
    """
    return read_library_header(Path(path))[0]


def read_library_header(path: Path) -> tuple[dict, str]:
    """The metadata and the architecture (x86_64, aarch64 …) of the library at `path`."""
    symbol = read_data_symbol(path, METADATA_SYMBOL)
    try:
        metadata = json.loads(symbol.data)
    except (ValueError, RecursionError) as e:
        raise MLCError(f"the library's metadata is not JSON: {e}", where=[str(path)]) from None
    found = metadata.get("format") if isinstance(metadata, dict) else None
    if found != FORMAT:
        raise UnsupportedError(
            f"the library has metadata format {found!r}; this runtime reads {FORMAT!r}",
            where=[str(path)],
            hint="compile the model again with this version",
        )
    return metadata, symbol.machine


def function_specs(metadata: dict) -> dict[str, FunctionSpec]:
    """The callable functions by name."""
    return parsed(lambda: {name: _function(name, f) for name, f in metadata.get("functions", {}).items()})


def parsed(parse: Callable[[], T]) -> T:
    """Call ``parse``; errors that malformed metadata causes in it become MLCError."""
    try:
        return parse()
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        what = f"{e.args[0]!r} is missing" if isinstance(e, KeyError) else str(e)
        raise MLCError(f"the library's metadata is malformed: {what}", hint="compile the model again") from None


def _function(name: str, entry: dict) -> FunctionSpec:
    inputs = tuple(_tensor(t) if "shape" in t else _scalar(t) for t in entry["inputs"])
    outputs = tuple(_tensor(t) for t in entry["outputs"])
    return FunctionSpec(name, inputs, outputs, entry.get("arguments"), entry.get("result"))


def _tensor(entry: dict) -> TensorSpec:
    shape = tuple(d if isinstance(d, int) else str(d) for d in entry["shape"])
    return TensorSpec(entry["name"], shape, entry["dtype"], bool(entry.get("written")), bool(entry.get("table")))


def _scalar(entry: dict) -> ScalarSpec:
    return ScalarSpec(entry["name"], entry["dtype"], entry.get("value"))
