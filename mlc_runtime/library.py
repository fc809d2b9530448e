"""Loads a compiled library and calls its functions with arrays."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from mlc_errors import MLCError, ResourceError, UnsupportedError
from mlc_files import check_library, copy_library
from mlc_runtime.arguments import (
    ArgumentError,
    Values,
    allocate,
    check_arguments,
    flatten_arguments,
    pack_result,
)
from mlc_runtime.arrays import to_tensor, tvm_ffi
from mlc_runtime.callbacks import register_callbacks
from mlc_runtime.device_arguments import DeviceArguments
from mlc_runtime.device_memory import DeviceMemory
from mlc_runtime.devices import device_number
from mlc_runtime.host import default_num_threads, host_machine, missing_instruction_sets
from mlc_runtime.memory import HOST, HostMemory
from mlc_runtime.metadata import FunctionSpec, function_specs, read_library_header
from mlc_runtime.timing import Repetitions, Timing
from mlc_scratch import temporary_folder

RawFunction = Callable[..., Any]
MAX_THREADS = 256
GPU_KINDS = frozenset({"cuda"})


class Library:
    """A compiled library.

    ``Library(path)`` reads the metadata and runs nothing; the code is loaded at the first call. ``lib["main"](a, b)``
    takes numpy arrays or any other arrays that support DLPack and returns new numpy arrays.

    num_threads: number of worker threads, see ``default_num_threads``. device: the number or the name
    (``cuda:1``) of the GPU that a library for GPUs runs on. Numpy arrays are copied to it and results back; if any
    argument is already on it, results stay there (``DeviceArray``, which also supports DLPack).
    Raises MLCError when the file is not a library of this compiler, or not one for the device. Calls from several
    threads are serialized; concurrent calls need a Library object each. The object stays usable after a fork.
    """

    def __init__(self, path: str | Path, num_threads: int | None = None, device: int | str = 0):
        self.path = Path(path)
        self.num_threads = num_threads
        self.lock = ForkSafeLock()
        self.metadata, self._machine = read_library_header(self.path)
        self.device = device if isinstance(device, int) else device_number(device, self.kind)

    @cached_property
    def functions(self) -> dict[str, FunctionSpec]:
        """Signatures of the callable functions, by name."""
        return function_specs(self.metadata)

    @property
    def default_num_threads(self) -> int:
        """``num-cores`` of the target if given, else the physical cores that this process may use."""
        cores = (self.metadata.get("target") or {}).get("num-cores")
        return cores if isinstance(cores, int) and 1 <= cores <= MAX_THREADS else default_num_threads()

    @cached_property
    def context(self) -> Context:
        """The worker threads and workspace that ``lib[name](…)`` uses."""
        return Context(self, self.num_threads)

    @property
    def memory(self) -> HostMemory:
        """The memory of the arrays that ``lib[name](…)`` works on."""
        return self.context.memory if self.is_for_gpu else HOST

    @property
    def is_for_gpu(self) -> bool:
        """Whether the library's functions work on GPU memory."""
        return self.kind in GPU_KINDS

    @property
    def kind(self) -> str:
        """The target kind that the library is compiled for: ``cpu``, ``cuda``."""
        return str((self.metadata.get("target") or {}).get("kind", "cpu"))

    def raw(self, name: str) -> RawFunction:
        """The exported function, without checks and allocation: takes the context's handle, inputs and outputs."""
        try:
            return self._module.get_function(name)
        except (AttributeError, RuntimeError):
            raise MLCError(f"the library exports no function {name!r}", where=[str(self.path)]) from None

    def __getitem__(self, name: str) -> Function:
        if name not in self.functions:
            known = ", ".join(self.functions) or "none"
            raise MLCError(f"the library has no function {name!r}; it has {known}", where=[str(self.path)])
        return Function(self, self.functions[name])

    def time_evaluator(
        self, name: str, number: int = 10, repeat: int = 3, min_repeat_ms: float = 0.0
    ) -> Callable[..., Timing]:
        """A callable that runs ``name`` with its arguments and returns the seconds per call.

        After one warm-up call it takes ``repeat`` measurements of ``number`` calls each, or of more, until one takes
        ``min_repeat_ms`` milliseconds. Raises MLCError for an unknown name and counts below one.
        """
        function, repetitions = self[name], Repetitions(number, repeat, min_repeat_ms)

        def evaluator(*args: object) -> Timing:
            with self.lock.held():
                return repetitions.measure(function.bind(*args).call)

        return evaluator

    def export_library(self, path: str | Path) -> Path:
        """Copy the library to ``path``, atomically; returns the path."""
        copy_library(self.path, Path(path))
        return Path(path)

    @cached_property
    def _module(self) -> tvm_ffi.Module:
        """The loaded code. dlopen caches by path, so load through a fresh symlink in case the file was replaced."""
        self._check_machine()
        check_library(self.path)
        try:
            with temporary_folder("load") as folder:
                alias = folder / self.path.name
                alias.symlink_to(self.path.absolute())
                register_callbacks()
                return tvm_ffi.load_module(alias)
        except (RuntimeError, OSError) as e:
            raise MLCError(f"the library does not load: {str(e).splitlines()[0]}", where=[str(self.path)]) from None

    def _check_machine(self) -> None:
        target = self.metadata.get("host") or self.metadata.get("target") or {}
        if self._machine != host_machine():
            problem = f"the library is made for {self._machine}; this machine is {host_machine()}"
        elif missing := missing_instruction_sets(target.get("isa", ())):
            problem = f"the library is made for the CPU {target.get('mcpu')}; this one lacks {', '.join(missing)}"
        else:
            return
        raise UnsupportedError(problem, where=[str(self.path)], hint="compile the model on or for this machine")


def load_library(path: str | Path, num_threads: int | None = None) -> Library:
    """Opens a compiled library: the same as ``Library(path, num_threads)``."""
    return Library(path, num_threads)


class ForkSafeLock:
    """A reentrant lock that is recreated in a forked process, where no thread holds it."""

    def __init__(self) -> None:
        self._lock, self._process = threading.RLock(), os.getpid()

    @contextmanager
    def held(self) -> Iterator[None]:
        if self._process != os.getpid():
            self._lock, self._process = threading.RLock(), os.getpid()
        with self._lock:
            yield


class ContextError(ResourceError, RuntimeError):
    """Threads or memory cannot be allocated, there is no GPU for the library, or the GPU fails."""


class Context:
    """Worker threads or a GPU stream, and a workspace; destroyed by ``close``, after ``with``, or with the object.

    One call at a time. A context that is open when the interpreter exits is not destroyed. Raises ContextError if
    it cannot be created.
    """

    def __init__(self, library: Library, num_threads: int | None = None):
        self.num_threads = library.default_num_threads if num_threads is None else num_threads
        if not (isinstance(self.num_threads, int) and 1 <= self.num_threads <= MAX_THREADS):
            raise ArgumentError(f"number of threads is {self.num_threads!r}; expected 1 to {MAX_THREADS}")
        self.library = library
        argument = library.device if library.is_for_gpu else self.num_threads
        self._handle: int = self._refusable(library.raw("context_create"), argument)
        self._destroy = library.raw("context_destroy")
        self._finalizer = weakref.finalize(self, self._destroy, self._handle)
        self._finalizer.atexit = False

    @property
    def handle(self) -> int:
        """The first argument of the library's functions. Raises MLCError when the context is closed."""
        if not self._finalizer.alive:
            raise MLCError("the model or library is closed")
        return self._handle

    @cached_property
    def memory(self) -> HostMemory:
        """The memory of the arrays that functions work on."""
        return DeviceMemory(self._operation, self.library.device) if self.library.is_for_gpu else HOST

    def bound(self, name: str, *arguments: object) -> Callable[[], Any]:
        """Bind an exported function to this context and arguments. Calls raise ContextError if system or GPU fail."""
        return partial(self._refusable, self.library.raw(name), self.handle, *arguments)

    def _operation(self, name: str, *integers: int) -> Any:
        return self.bound(name, *integers)()

    def _refusable(self, function: RawFunction, *arguments: object) -> Any:
        """Call the function; its failure is raised as ContextError."""
        try:
            return function(*arguments)
        except RuntimeError as error:
            hint = "to run on the CPU, compile with --device cpu" if self.library.is_for_gpu else None
            raise ContextError(str(error), where=[str(self.library.path)], hint=hint) from None

    def close(self) -> None:
        """Stop the workers; free the GPU's memory. Raises RuntimeError, with no effect, while a call runs."""
        if self._finalizer.alive:
            self.memory.close()
            self._destroy(self._handle)
            self._finalizer.detach()

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Function:
    """A function of a library that checks its arguments, allocates its results and returns them."""

    def __init__(self, library: Library, spec: FunctionSpec):
        self.spec = spec
        self._library = library

    def __call__(self, *args: object) -> object:
        """Call the function.

        Pass tensors as arrays that support DLPack (4-bit integers as ``ml_dtypes`` or 8-bit arrays), tuples as tuples
        or lists. Returns a numpy array, a number, a shape (a tuple of integers), or a (nested) tuple of them; an
        argument that the function updates in place is returned itself. Returns None for a tensor function, which writes
        its results into its last arguments. Raises ArgumentError for arguments that do not match the signature;
        exceptions of functions registered from Python propagate.
        """
        with self._library.lock.held():
            bound = self.bind(*args)
            bound.call()
        return bound.result()

    def bind(self, *args: object) -> BoundCall:
        """Check the arguments and allocate the results of a call that can then be repeated."""
        given = flatten_arguments(self.spec, args)
        if self._library.is_for_gpu:
            return self._bind_on_device(given)
        operands, sizes = check_arguments(self.spec, given)
        outputs = [allocate(spec, sizes) for spec in self.spec.outputs]
        full = (self._library.context.handle, *operands, *map(to_tensor, outputs))
        call = partial(self._library.raw(self.spec.name), *full)
        return BoundCall(call, self.spec, Values(_numbers_and_arrays(operands, given), outputs, sizes))

    def _bind_on_device(self, given: tuple) -> BoundCall:
        context = self._library.context
        assert isinstance(context.memory, DeviceMemory)
        operands, sizes = check_arguments(self.spec, given, on_device=True)
        moved = DeviceArguments(self.spec, operands, context.memory)
        outputs = [allocate(spec, sizes, context.memory) for spec in self.spec.outputs]
        full = (context.handle, *moved.operands, *map(context.memory.tensor, outputs))
        call = moved.returning(partial(self._library.raw(self.spec.name), *full))
        values = Values(_numbers_and_arrays(operands, given), outputs, sizes)
        return BoundCall(call, self.spec, values, to_numpy=not moved.any_on_device)


@dataclass(frozen=True)
class BoundCall:
    """A call bound to its arguments and results; each call overwrites the results."""

    call: Callable[[], object]
    spec: FunctionSpec
    values: Values
    to_numpy: bool = False

    def result(self) -> object:
        """The function's result, valid after a call. to_numpy: copy results from the device."""
        if not self.to_numpy:
            return pack_result(self.spec, self.values)
        outputs = [output.numpy() for output in self.values.outputs]
        return pack_result(self.spec, replace(self.values, outputs=outputs))


def _numbers_and_arrays(operands: Sequence[object], given: Sequence[object]) -> list[object]:
    return [x if isinstance(x, int | float) else a for x, a in zip(operands, given, strict=True)]
