"""The compiler in a few functions: text to module, module to library, library to results."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mlc_errors import MLCError
from mlc_runtime.arrays import as_numpy, tvm_ffi
from mlc_runtime.library import Library

from .driver import build_library, native_text
from .ir.module import IRModule
from .pipeline import entries, run_passes
from .relax.bind_params import bind_params as bind_arrays
from .relax.nodes import Function
from .script import parse as parse_script
from .script import script
from .target import Target, as_target
from .tir.nodes import PrimFunc
from .verifier import verify

Buildable = IRModule | Function | PrimFunc
TargetSpec = str | Mapping[str, Any] | Target | None


def parse(text: str, constants: Sequence[np.ndarray] = ()) -> IRModule:
    """The module of a TVMScript text; of a text with a single function, a module that holds just that.

    constants: the arrays that ``metadata["relax.expr.Constant"][i]`` refers to. Raises ScriptError, which points at the
    place in the text.
    """
    return as_module(parse_script(text, constants))


def to_script(node: Any) -> str:
    """A module, function, statement or expression as TVMScript text; the same text whenever it is printed.

    ``parse(to_script(mod))`` is structurally equal to ``mod``, unless large constants are given to ``parse`` apart.
    """
    return script(node)


def bind_params(mod: IRModule, name: str, params: Mapping[str, Any]) -> IRModule:
    """The module in which parameters of the graph function ``name`` are constants.

        bound = bind_params(mod, "main", {"w": np.ones((3, 2), np.float32)})
        y = build(bound)["main"](x)

    params: arrays (numpy, or whatever speaks DLPack) by parameter name. Raises MLCError for a name that the function
    does not have, and for another dtype or shape than it declares.
    """
    return bind_arrays(mod, name, {k: _as_array(k, v) for k, v in params.items()})


def register_func(name: str, func: Callable[..., Any] | None = None, *, override: bool = False) -> Any:
    """Make a Python function callable by name from compiled code (``R.call_dps_packed("name", …)``).

    It gets its inputs and then its results as DLPack tensors (``numpy.from_dlpack``, ``torch.from_dlpack``) that share
    memory with the caller and are valid only during the call, and writes into the results. What it raises is raised by
    the call of the compiled function (as RuntimeError, where the exception is not one of Python's common ones). Used as
    a decorator when ``func`` is not given. Raises ValueError for a name that is taken, unless ``override``.
    """
    return tvm_ffi.register_global_func(name, func, override)


def build(
    mod: Buildable, target: TargetSpec = None, *, num_threads: int | None = None, dump: Path | None = None
) -> Library:
    """Compile a module, or a single function, and load the result.

        lib = build(mod)
        y = lib["main"](x, w)

    Every graph function becomes callable (those with a ``global_symbol``, when there are any), and every public tensor
    function, which takes its outputs as last arguments. target: what ``Target`` accepts; None is the target of the
    ``with Target(…)`` around, or else this machine's CPU. dump: a folder that receives the module's text after each
    pass. The library's file lives as long as the object; see
    ``Library.export_library``. Raises MLCError for what cannot be compiled.
    """
    return build_prepared(_with_entries(mod), target, num_threads, dump)[0]


def build_prepared(
    mod: IRModule, target: TargetSpec, num_threads: int | None, dump: Path | None = None
) -> tuple[Library, IRModule]:
    """Compile a module whose functions can be called as they are; also gives the lowered module."""
    folder = tempfile.TemporaryDirectory(prefix="mlc-build-")
    output = Path(folder.name) / "lib.so"
    built = build_library(mod, as_target(target), output, dump=dump)
    library = Library(output, num_threads)
    weakref.finalize(library, folder.cleanup)
    return library, built.mod


def load_library(path: str | Path, num_threads: int | None = None) -> Library:
    """Open a library that was built before: ``load_library("model.so")["main"](x)``.

    num_threads: of its calls; by default the physical cores that this process may use. Raises MLCError for a file that
    is no library of this compiler, and for one that needs instructions that this machine lacks.
    """
    return Library(path, num_threads)


def emit_llvm(mod: Buildable, target: TargetSpec = None) -> str:
    """The optimized LLVM code of a module or function, as text. Target and errors are those of ``build``."""
    return native_text(_with_entries(mod), as_target(target), "llvm")


def emit_asm(mod: Buildable, target: TargetSpec = None) -> str:
    """The assembly of a module or function. Target and errors are those of ``build``."""
    return native_text(_with_entries(mod), as_target(target), "asm")


def _with_entries(mod: Buildable) -> IRModule:
    module = as_module(mod)
    verify(module)
    return run_passes(module, entries())


def as_module(mod: Buildable) -> IRModule:
    """The module itself, or one that holds just the function, under its ``global_symbol`` or else ``main``."""
    if isinstance(mod, Function | PrimFunc):
        return IRModule({mod.attrs.get("global_symbol", "main"): mod})
    if not isinstance(mod, IRModule):
        raise MLCError(f"got a {type(mod).__name__}; expected an IRModule or a function of one")
    return mod


def _as_array(name: str, value: object) -> np.ndarray:
    try:
        return as_numpy(value)
    except MLCError as e:
        raise MLCError(f"bind_params: {name} {e.message}") from None
