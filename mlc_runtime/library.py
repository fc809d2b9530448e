"""Loads a compiled library and calls its functions with arrays."""

from __future__ import annotations

import os
import statistics
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mlc_errors import MLCError, UnsupportedError
from mlc_runtime.arrays import aligned_empty, dtype_of, to_tensor, tvm_ffi
from mlc_runtime.host import default_num_threads, host_machine, missing_cpu_flags
from mlc_runtime.metadata import FunctionSpec, TensorSpec, function_specs, read_library_header
from mlc_runtime.shapes import evaluate, matches, solve

RawFunction = Callable[..., Any]


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

    @cached_property
    def _module(self) -> tvm_ffi.Module:
        self._check_machine()
        try:
            return tvm_ffi.load_module(os.path.abspath(self.path))
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
        if not 1 <= self.num_threads <= 1024:
            raise ArgumentError(f"number of threads is {self.num_threads}; expected 1 to 1024")
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

    def __call__(self, *args: object) -> np.ndarray | tuple[np.ndarray, ...]:
        """The result for inputs in the order of ``spec.inputs``: one array, or a tuple when there are several."""
        call, operands, outputs = self.bind(*args)
        call(*operands)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def bind(self, *args: object) -> tuple[RawFunction, tuple, list[np.ndarray]]:
        """The raw function, its operands (context, inputs, outputs) and the outputs, ready to be called repeatedly."""
        tensors, sizes = check_arguments(self.spec, args)
        outputs = [allocate(spec, sizes) for spec in self.spec.outputs]
        operands = (self._library.context.handle, *tensors, *map(to_tensor, outputs))
        return self._library.raw(self.spec.name), operands, outputs


def check_arguments(spec: FunctionSpec, args: tuple) -> tuple[list[tvm_ffi.Tensor], dict[str, int]]:
    """The arguments as tensors, and the symbolic sizes that their shapes imply. Raises ArgumentError."""
    if len(args) != len(spec.inputs):
        names = ", ".join(t.name for t in spec.inputs)
        raise ArgumentError(f"{spec.name} got {len(args)} arguments; expected {len(spec.inputs)} ({names})")
    tensors = [_tensor(spec.name, t, arg) for t, arg in zip(spec.inputs, args, strict=True)]
    sizes = solve([t.shape for t in spec.inputs], [tuple(x.shape) for x in tensors])
    for expected, tensor in zip(spec.inputs, tensors, strict=True):
        _check(spec.name, expected, tensor, sizes)
    return tensors, sizes


def allocate(spec: TensorSpec, sizes: dict[str, int]) -> np.ndarray:
    """An uninitialised array for a result. Raises ArgumentError when the inputs do not determine its shape."""
    try:
        shape = [evaluate(size, sizes) for size in spec.shape]
    except KeyError as e:
        raise ArgumentError(f"the inputs do not determine the size {e.args[0]!r} of the result {spec.name!r}") from None
    if any(size < 0 for size in shape):
        raise ArgumentError(f"result {spec.name!r} would have shape {shape}; sizes must not be negative")
    return aligned_empty(shape, dtype_of(spec.dtype))


def _tensor(function: str, spec: TensorSpec, arg: object) -> tvm_ffi.Tensor:
    if isinstance(arg, tvm_ffi.Tensor):
        return arg
    try:
        return to_tensor(arg) if isinstance(arg, np.ndarray) else tvm_ffi.from_dlpack(arg)
    except (TypeError, BufferError, ValueError, RuntimeError) as e:
        got = f"{type(arg).__name__} ({str(e).splitlines()[0]})"
        raise ArgumentError(f"{_name(function, spec)} is {got}; expected an array {spec}") from None


def _check(function: str, spec: TensorSpec, tensor: tvm_ffi.Tensor, sizes: dict[str, int]) -> None:
    shape = tuple(tensor.shape)
    if str(tensor.dtype) != spec.dtype:
        problem = f"has dtype {tensor.dtype}"
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


def _name(function: str, spec: TensorSpec) -> str:
    return f"{function}: argument {spec.name!r}"


def _seconds_per_call(call: RawFunction, operands: tuple, number: int) -> float:
    begin = time.perf_counter()
    for _ in range(number):
        call(*operands)
    return (time.perf_counter() - begin) / number
