"""Texts for measuring accuracy from installed packages, of other kinds than the calibration text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.metadata import metadata
from importlib.util import find_spec
from pathlib import Path

SHORTEST = 200  # characters; shorter docstrings are mostly markup
SKIPPED_FOLDERS = frozenset({"test", "tests", "idlelib", "lib2to3", "site-packages", "pydoc_data"})
TRAINING_PACKAGES = ("networkx", "numpy", "sympy")
"""Packages with a licence (BSD) that allows training."""
DESCRIBED_PACKAGES = (
    *("huggingface_hub", "llvmlite", "ml_dtypes", "numpy", "pytest", "regex"),
    *("rich", "sympy", "tokenizers", "torch", "tqdm", "transformers"),
)
BOOK = "3rdparty/libbacktrace/Isaac.Newton-Opticks.txt"  # in the package tvm_ffi


def held_out_text() -> str:
    """A book of 1730, followed by the descriptions of ``DESCRIBED_PACKAGES``, a quarter as long.

    The text depends on the packages' versions: results record its hash.
    """
    descriptions = (metadata(package).json.get("description", "") for package in DESCRIBED_PACKAGES)
    return "\n\n".join([book(), *map(str, descriptions)])


def book() -> str:
    """Newton's *Opticks*, of 1730."""
    (folder,) = _folders("tvm_ffi")
    return (folder / BOOK).read_text()


def training_text() -> str:
    """The distinct docstrings of installed packages."""
    texts = (text for package in TRAINING_PACKAGES for folder in _folders(package) for text in docstrings(folder))
    return "\n\n".join(dict.fromkeys(texts))


def _folders(package: str) -> list[Path]:
    spec = find_spec(package)
    return [Path(place) for place in (spec and spec.submodule_search_locations) or ()]


def docstrings(folder: Path) -> Iterator[str]:
    """The docstrings of modules, classes and functions below a folder."""
    for path in sorted(folder.rglob("*.py")):
        if SKIPPED_FOLDERS.isdisjoint(path.relative_to(folder).parts):
            yield from _of_file(path)


def _of_file(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):  # files with deliberate errors
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node)
            if text and len(text) >= SHORTEST:
                yield text
