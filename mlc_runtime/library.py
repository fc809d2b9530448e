"""Loads a compiled library and calls its functions with arrays."""

from __future__ import annotations

import operator
import os
import shutil
import statistics
import tempfile
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mlc_errors import MLCError, ResourceError, UnsupportedError
from mlc_runtime.arrays import aligned_empty, dtype_of, to_tensor, tvm_ffi
from mlc_runtime.debug import register_debug_print
from mlc_runtime.host import default_num_threads, host_machine, missing_cpu_flags
from mlc_runtime.metadata import (
    Arguments,
    FunctionSpec,
    Result,
    ScalarSpec,
    TensorSpec,
    function_specs,
    read_library_header,
)
from mlc_runtime.shapes import evaluate, matches, solve

RawFunction = Callable[..., Any]
MAX_THREADS = 256


class ArgumentError(MLCError, ValueError):
    """A call whose arguments do not fit the function."""


class Library:
    """A compiled library.

    ``Library(path)`` reads the metadata and runs nothing; the code is loaded at the first call. ``lib["main"](a, b)``
    takes numpy arrays or any other arrays that support DLPack and returns new numpy arrays.

    num_threads: the size of the worker team of the calls (default: the physical cores that this process may use).
    Raises MLCError when the file is not a library of this compiler. A library serves one call at a time.
    """

    def __init__(self, path: str | Path, num_threads: int | None = None):
        self.path = Path(path)
        self.num_threads = num_threads
        self.metadata, self._machine = read_library_header(self.path)

    @cached_property
    def functions(self) -> dict[str, FunctionSpec]:
        """What can be called, by name."""
        return function_specs(self.metadata)

    @cached_property
    def context(self) -> Context:
        """The worker team and workspace that ``lib[name](…)`` uses."""
        return Context(self, self.num_threads)

    def raw(self, name: str) -> RawFunction:
        """The function as exported: takes the context's handle, then inputs and outputs, and allocates nothing."""
        try:
            return self._module.get_function(name)
        except (AttributeError, RuntimeError):
            raise MLCError(f"the library exports no function {name!r}", where=[str(self.path)]) from None

    def __getitem__(self, name: str) -> Function:
        if name not in self.functions:
            known = ", ".join(self.functions) or "none"
            raise MLCError(f"the library has no function {name!r}; it has {known}", where=[str(self.path)])
        return Function(self, self.functions[name])

    def time_evaluator(self, name: str, number: int = 10, repeat: int = 3) -> Callable[..., Timing]:
        """A function that calls `name` with its arguments `number` times, `repeat` times over, and gives the times."""
        function = self[name]

        def evaluator(*args: object) -> Timing:
            call, operands, _ = function.bind(*args)
            call(*operands)
            return Timing(tuple(_seconds_per_call(call, operands, number) for _ in range(repeat)))

        return evaluator

    def export_library(self, path: str | Path) -> Path:
        """Write the library to a file, which appears whole or not at all; gives its path."""
        path = Path(path)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            shutil.copyfile(self.path, temporary)
            os.chmod(temporary, 0o755)
            os.replace(temporary, path)
        except OSError as e:
            temporary.unlink(missing_ok=True)
            raise MLCError(f"cannot write the library: {e.strerror}", where=[str(path)]) from None
        return path

    @cached_property
    def _module(self) -> tvm_ffi.Module:
        """The code. For a path that it has seen the system's loader gives what it found there then: hence an alias."""
        self._check_machine()
        try:
            with tempfile.TemporaryDirectory(prefix="mlc-load-") as folder:
                alias = Path(folder) / self.path.name
                alias.symlink_to(self.path.absolute())
                register_debug_print()
                return tvm_ffi.load_module(alias)
        except (RuntimeError, OSError) as e:
            raise MLCError(f"the library does not load: {str(e).splitlines()[0]}", where=[str(self.path)]) from None

    def _check_machine(self) -> None:
        target = self.metadata.get("target") or {}
        if self._machine != host_machine():
            problem = f"the library is made for {self._machine}; this machine is {host_machine()}"
        elif missing := missing_cpu_flags(target.get("vector_bits", 0)):
            problem = f"the library is made for the CPU {target.get('cpu')}; this one lacks {', '.join(missing)}"
        else:
            return
        raise UnsupportedError(problem, where=[str(self.path)], hint="compile the model on or for this machine")


def load_library(path: str | Path, num_threads: int | None = None) -> Library:
    """Opens a compiled library: the same as ``Library(path, num_threads)``."""
    return Library(path, num_threads)


class Context:
    """A worker team and its workspace inside a library; ended by ``close``, by leaving ``with``, or with the object."""

    def __init__(self, library: Library, num_threads: int | None = None):
        self.num_threads = default_num_threads() if num_threads is None else num_threads
        if not 1 <= self.num_threads <= MAX_THREADS:
            raise ArgumentError(f"number of threads is {self.num_threads}; expected 1 to {MAX_THREADS}")
        self._handle: int = library.raw("context_create")(self.num_threads)
        self._finalizer = weakref.finalize(self, library.raw("context_destroy"), self._handle)

    @property
    def handle(self) -> int:
        """What the library's functions take as their first argument. Raises MLCError when the context is closed."""
        if not self._finalizer.alive:
            raise MLCError("the model or library is closed")
        return self._handle

    def close(self) -> None:
        self._finalizer()

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Timing:
    """Seconds per call, one number per repetition."""

    results: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.results)

    @property
    def min(self) -> float:
        return min(self.results)


class Function:
    """A function of a library that checks its arguments, allocates its results and returns them."""

    def __init__(self, library: Library, spec: FunctionSpec):
        self.spec = spec
        self._library = library

    def __call__(self, *args: object) -> object:
        """The result for the function's arguments.

        Tensors are arrays of any library that speaks DLPack, tuples of tensors are tuples or lists. Gives a numpy array
        or a (nested) tuple of them; an argument that the function wrote into and returns is given back itself. None
        for a tensor function, which writes its results into its last arguments.
        Raises ArgumentError for arguments that do not fit, and what a registered function raised.
        """
        call, operands, outputs = self.bind(*args)
        call(*operands)
        if self.spec.result is None:
            return _plain_result(outputs)
        return pack_result(self.spec.result, flatten_arguments(self.spec, args), outputs)

    def bind(self, *args: object) -> tuple[RawFunction, tuple, list[np.ndarray]]:
        """The raw function, its operands (context, inputs, outputs) and the outputs, ready to be called repeatedly."""
        operands, sizes = check_arguments(self.spec, flatten_arguments(self.spec, args))
        outputs = [allocate(spec, sizes) for spec in self.spec.outputs]
        full = (self._library.context.handle, *operands, *map(to_tensor, outputs))
        return self._library.raw(self.spec.name), full, outputs


def check_arguments(spec: FunctionSpec, args: tuple) -> tuple[list[object], dict[str, int]]:
    """The flat arguments as tensors and numbers, and the symbolic sizes that they imply. Raises ArgumentError."""
    if len(args) != len(spec.inputs):
        names = ", ".join(t.name for t in spec.inputs)
        raise ArgumentError(f"{spec.name} got {len(args)} arguments; expected {len(spec.inputs)} ({names})")
    operands = [_operand(spec.name, s, arg) for s, arg in zip(spec.inputs, args, strict=True)]
    pairs = list(zip(spec.inputs, operands, strict=True))
    sizes = {s.size: int(x) for s, x in pairs if isinstance(s, ScalarSpec) and s.size is not None}
    tensors = [(s, x) for s, x in pairs if isinstance(s, TensorSpec)]
    sizes = solve([s.shape for s, _ in tensors], [tuple(x.shape) for _, x in tensors], sizes)
    for expected, tensor in tensors:
        _check(spec.name, expected, tensor, sizes)
    return operands, sizes


def as_tensor(function: str, spec: TensorSpec, arg: object) -> tvm_ffi.Tensor:
    """An array of any library that speaks DLPack as a tensor over its memory. Raises ArgumentError unless it fits."""
    tensor = _tensor(function, spec, arg)
    _check(function, spec, tensor, {})
    return tensor


def flatten_arguments(spec: FunctionSpec, args: tuple) -> tuple:
    """The arguments with tuples replaced by their fields. Raises ArgumentError for a tuple of another length."""
    if spec.arguments is None:
        return args
    if len(args) != len(spec.arguments):
        raise ArgumentError(f"{spec.name} got {len(args)} arguments; expected {len(spec.arguments)}")
    flat: dict[int, object] = {}
    for i, (place, arg) in enumerate(zip(spec.arguments, args, strict=True)):
        _flatten(f"{spec.name}: argument {i}", place, arg, flat)
    return tuple(flat[i] for i in range(len(flat)))


def _flatten(what: str, place: Arguments, arg: object, flat: dict[int, object]) -> None:
    if isinstance(place, int):
        flat[place] = arg
        return
    if not isinstance(arg, Sequence) or isinstance(arg, str | bytes):
        raise ArgumentError(f"{what} is {type(arg).__name__}; expected a tuple of {len(place)}")
    if len(arg) != len(place):
        raise ArgumentError(f"{what} has {len(arg)} fields; expected {len(place)}")
    for i, (inner, field) in enumerate(zip(place, arg, strict=True)):
        _flatten(f"{what}[{i}]", inner, field, flat)


def pack_result(result: Result, args: Sequence[object], outputs: Sequence[np.ndarray]) -> object:
    """A function's result from its flat arguments and outputs."""
    if isinstance(result, list):
        return tuple(pack_result(r, args, outputs) for r in result)
    return args[result["input"]] if "input" in result else outputs[result["output"]]


def _plain_result(outputs: Sequence[np.ndarray]) -> object:
    if not outputs:
        return None
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def allocate(spec: TensorSpec, sizes: dict[str, int]) -> np.ndarray:
    """An uninitialised array for a result.

    Raises ArgumentError when the inputs do not determine its shape, ResourceError when there is no memory for it.
    """
    try:
        shape = [evaluate(size, sizes) for size in spec.shape]
    except KeyError as e:
        raise ArgumentError(f"the inputs do not determine the size {e.args[0]!r} of the result {spec.name!r}") from None
    if any(size < 0 for size in shape):
        raise ArgumentError(f"result {spec.name!r} would have shape {shape}; sizes must not be negative")
    try:
        return aligned_empty(shape, dtype_of(spec.dtype))
    except (MemoryError, ValueError, OverflowError):
        raise ResourceError(f"result {spec.name!r} of shape {shape} does not fit into memory") from None


def _operand(function: str, spec: TensorSpec | ScalarSpec, arg: object) -> object:
    if isinstance(spec, ScalarSpec):
        return _scalar(function, spec, arg)
    return arg if isinstance(arg, tvm_ffi.Tensor) else _tensor(function, spec, arg)


def _tensor(function: str, spec: TensorSpec, arg: object) -> tvm_ffi.Tensor:
    if spec.written and isinstance(arg, np.ndarray) and not arg.flags.writeable:
        raise ArgumentError(f"{_name(function, spec)} is read-only; the function writes into it")
    try:
        return to_tensor(arg) if isinstance(arg, np.ndarray) else tvm_ffi.from_dlpack(arg)
    except Exception as e:  # an object's own __dlpack__ may raise anything
        reason = (str(e).splitlines() or [type(e).__name__])[0]
        got = f"{type(arg).__name__} ({reason})"
        raise ArgumentError(f"{_name(function, spec)} is {got}; expected an array {spec}") from None


def _dtype_name(tensor: tvm_ffi.Tensor) -> str:
    try:
        return str(tensor.dtype)
    except ValueError:  # complex, for instance
        return "of another kind"


def _scalar(function: str, spec: ScalarSpec, arg: object) -> int | float:
    kind = float if spec.dtype.startswith("float") else int
    try:
        number = float(arg) if kind is float else operator.index(arg)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"{_name(function, spec)} is {type(arg).__name__}; expected a number, {spec}") from None
    if kind is int and not -(1 << 63) <= number < 1 << 63:
        raise ArgumentError(f"{_name(function, spec)} is {number}; expected a number that fits {spec}")
    return number


def _check(function: str, spec: TensorSpec, tensor: tvm_ffi.Tensor, sizes: dict[str, int]) -> None:
    shape = tuple(tensor.shape)
    dtype = _dtype_name(tensor)
    if dtype != spec.dtype:
        problem = f"has dtype {dtype}"
    elif not matches(spec.shape, shape, sizes):
        known = ", ".join(f"{k} = {v}" for k, v in sizes.items() if any(k in str(d) for d in spec.shape))
        problem = f"has shape {list(shape)}"
        spec_text = f"{spec}" + (f" with {known}" if known else "")
        raise ArgumentError(f"{_name(function, spec)} {problem}; expected {spec_text}")
    elif tensor.device.type != "cpu":
        problem = f"is on {tensor.device}"
    elif not tensor.is_contiguous():
        problem = f"has strides {list(tensor.strides)}, it is not contiguous"
    elif tensor.data_ptr() % dtype_of(spec.dtype).itemsize:
        problem = f"begins at address {tensor.data_ptr():#x}, it is not aligned to its elements"
    else:
        return
    raise ArgumentError(f"{_name(function, spec)} {problem}; expected a contiguous, aligned array {spec} on the CPU")


def _name(function: str, spec: TensorSpec | ScalarSpec) -> str:
    return f"{function}: argument {spec.name!r}"


def _seconds_per_call(call: RawFunction, operands: tuple, number: int) -> float:
    begin = time.perf_counter()
    for _ in range(number):
        call(*operands)
    return (time.perf_counter() - begin) / number
