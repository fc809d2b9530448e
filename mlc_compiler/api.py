"""Public API of the compiler: parse a module, compile it to a library, call the library."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mlc_errors import MLCError
from mlc_runtime.arrays import as_numpy, tvm_ffi
from mlc_runtime.library import Library
from mlc_scratch import new_folder

from .driver import build_library, native_text
from .ir.module import IRModule
from .optimization import DEFAULT_LEVEL, Optimization
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
    """Parse TVMScript text to a module; a text with a single function gives a module of that function.

    constants: the arrays that ``metadata["relax.expr.Constant"][i]`` refers to. Raises ScriptError with the line and
    column of the error.
    """
    return as_module(parse_script(text, constants))


def to_script(node: Any) -> str:
    """Print a module, function, statement or expression as TVMScript text. The text is deterministic.

    ``parse(to_script(mod))`` is structurally equal to ``mod``, unless it has large constants: these are not part of the
    text and have to be passed to ``parse``.
    """
    return script(node)


def bind_params(mod: IRModule, name: str, params: Mapping[str, Any]) -> IRModule:
    """Replace parameters of the graph function ``name`` by constants.

        bound = bind_params(mod, "main", {"w": np.ones((3, 2), np.float32)})
        y = build(bound)["main"](x)

    params: arrays (numpy, or any that supports DLPack) by parameter name. Raises MLCError for an unknown parameter
    name, and for an array whose dtype or shape differs from the declared one.
    """
    return bind_arrays(mod, name, {k: _as_array(k, v) for k, v in params.items()})


def register_func(name: str, func: Callable[..., Any] | None = None, *, override: bool = False) -> Any:
    """Make a Python function callable by name from compiled code (``R.call_dps_packed("name", …)``).

    It is called with its inputs and then its results as DLPack tensors (``numpy.from_dlpack``, ``torch.from_dlpack``)
    that share memory with the caller and are valid only during the call, and writes into the results. Its exceptions
    propagate to the caller of the compiled function (types other than Python's common ones as RuntimeError). Used as
    a decorator when ``func`` is not given. Raises ValueError for a name that is already registered, unless
    ``override``.
    """
    return tvm_ffi.register_global_func(name, func, override)


def build(
    mod: Buildable,
    target: TargetSpec = None,
    *,
    num_threads: int | None = None,
    dump: Path | None = None,
    pipeline: Callable[[IRModule], IRModule] | None = None,
    opt: str = DEFAULT_LEVEL,
) -> Library:
    """Compile a module, or a single function, and load the result.

        lib = build(mod)
        y = lib["main"](x, w)

    Every graph function becomes callable (only those with a ``global_symbol``, when there are any), and every public
    tensor function, which takes its outputs as last arguments. target: what ``Target`` accepts; None is the target of
    the enclosing ``with Target(…)``, or else this machine's CPU. num_threads: see ``load_library``. dump: a folder to
    which the module's text is written after each pass. pipeline: applied to the module before anything else, with
    ``target`` as the current target, such as passes of the caller. opt: text for ``Optimization.parse``, such as
    ``"act=exact"``. The library's file is deleted with the object; see
    ``Library.export_library``. Raises MLCError for a module that cannot be compiled.
    """
    if pipeline is not None:
        with as_target(target):
            mod = pipeline(as_module(mod))
    return build_prepared(_with_entries(mod), target, num_threads, dump, opt)[0]


def build_prepared(
    mod: IRModule, target: TargetSpec, num_threads: int | None, dump: Path | None = None, opt: str = DEFAULT_LEVEL
) -> tuple[Library, IRModule]:
    """Compile a module on which ``entries`` or ``methods`` have run; return the library and the lowered module."""
    folder = new_folder("build")
    try:
        output = folder / "lib.so"
        built = build_library(mod, as_target(target), output, optimization=Optimization.parse(opt), dump=dump)
        library = Library(output, num_threads)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(library, shutil.rmtree, folder, ignore_errors=True).atexit = False
    return library, built.mod


def load_library(path: str | Path, num_threads: int | None = None) -> Library:
    """Load a library file: ``load_library("model.so")["main"](x)``.

    num_threads: threads of a call; by default the number of physical cores available to this process. Raises MLCError
    for a file that was not built by this compiler, and for one that uses instructions this machine does not support.
    """
    return Library(path, num_threads)


def emit_llvm(mod: Buildable, target: TargetSpec = None) -> str:
    """The optimized LLVM IR of a module or function, as text. Target and errors are those of ``build``."""
    return native_text(_with_entries(mod), as_target(target), "llvm")


def emit_asm(mod: Buildable, target: TargetSpec = None) -> str:
    """The assembly of a module or function. Target and errors are those of ``build``."""
    return native_text(_with_entries(mod), as_target(target), "asm")


def emit_ptx(mod: Buildable, target: TargetSpec = None) -> str:
    """The PTX of a module's or function's kernels; target: an NVIDIA GPU, such as ``cuda:sm_90a``."""
    return native_text(_with_entries(mod), as_target(target), "ptx")


def _with_entries(mod: Buildable) -> IRModule:
    module = as_module(mod)
    verify(module)
    return run_passes(module, entries())


def as_module(mod: Buildable) -> IRModule:
    """Return a module unchanged; wrap a function in a module, named by its ``global_symbol`` or else ``main``."""
    if isinstance(mod, Function | PrimFunc):
        return IRModule.from_expr(mod)
    if not isinstance(mod, IRModule):
        raise MLCError(f"got a {type(mod).__name__}; expected an IRModule or a function of one")
    return mod


def _as_array(name: str, value: object) -> np.ndarray:
    try:
        return as_numpy(value)
    except MLCError as e:
        raise MLCError(f"bind_params: {name} {e.message}") from None
