"""Check the arguments of compiled functions, solve their symbolic sizes and allocate the results."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from mlc_errors import MLCError, ResourceError, UsageError
from mlc_runtime.arrays import device_name, from_dlpack, is_on_cpu, to_tensor, tvm_ffi
from mlc_runtime.dtypes import dtype_of, tensor_dtype
from mlc_runtime.memory import HOST, Array, HostMemory
from mlc_runtime.metadata import Arguments, FunctionSpec, Result, ScalarSpec, TensorSpec
from mlc_runtime.shapes import evaluate, matches, solve

Sizes = dict[str, int]  # float scalar arguments are stored too; only result descriptions refer to them


class ArgumentError(UsageError, ValueError):
    """The arguments of a call do not match the function's signature."""


def check_arguments(spec: FunctionSpec, args: tuple, on_device: bool = False) -> tuple[list[object], Sizes]:
    """Convert flat arguments to tensors and numbers, and solve the symbolic sizes. Raises ArgumentError.

    on_device: accept tensors in the memory of a device; the library checks which.
    """
    if len(args) != len(spec.inputs):
        names = ", ".join(t.name for t in spec.inputs)
        raise ArgumentError(f"{spec.name} got {len(args)} arguments; expected {len(spec.inputs)} ({names})")
    operands = [_operand(spec.name, s, arg) for s, arg in zip(spec.inputs, args, strict=True)]
    pairs = list(zip(spec.inputs, operands, strict=True))
    given = {s.size: x for s, x in pairs if isinstance(s, ScalarSpec) and s.size is not None}
    tensors = [(s, x) for s, x in pairs if isinstance(s, TensorSpec)]
    sizes = solve([s.shape for s, _ in tensors], [tuple(x.shape) for _, x in tensors], given)
    for expected, tensor in tensors:
        _check(spec.name, expected, tensor, sizes, on_device)
    _check_memory(spec.name, tensors)
    return operands, sizes


def as_tensor(function: str, spec: TensorSpec, arg: object) -> tvm_ffi.Tensor:
    """A tensor over the memory of an array that supports DLPack. Raises ArgumentError unless it matches ``spec``."""
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
    for i, (positions, arg) in enumerate(zip(spec.arguments, args, strict=True)):
        _flatten(f"{spec.name}: argument {i}", positions, arg, flat)
    return tuple(flat[i] for i in range(len(flat)))


def _flatten(what: str, positions: Arguments, arg: object, flat: dict[int, object]) -> None:
    if isinstance(positions, int):
        flat[positions] = arg
        return
    if not isinstance(arg, Sequence) or isinstance(arg, str | bytes):
        raise ArgumentError(f"{what} is {type(arg).__name__}; expected a tuple of {len(positions)}")
    if len(arg) != len(positions):
        raise ArgumentError(f"{what} has {len(arg)} fields; expected {len(positions)}")
    for i, (inner, field) in enumerate(zip(positions, arg, strict=True)):
        _flatten(f"{what}[{i}]", inner, field, flat)


@dataclass(frozen=True)
class Values:
    """The flat arguments of a call, its result arrays and its symbolic sizes."""

    inputs: Sequence[object]
    outputs: Sequence[Array]
    sizes: Sizes


def pack_result(spec: FunctionSpec, values: Values) -> object:
    """Assemble the result that ``spec.result`` describes (array, number, shape, tuple); without it, the outputs."""
    if spec.result is not None:
        return _packed(spec.result, values)
    if not values.outputs:
        return None
    return values.outputs[0] if len(values.outputs) == 1 else tuple(values.outputs)


def _packed(result: Result, values: Values) -> object:
    match result:
        case {"input": int(position)}:
            return values.inputs[position]
        case {"output": int(position)}:
            return values.outputs[position]
        case {"value": int(size) | str(size)}:
            return evaluate(size, values.sizes)
        case {"shape": [*sizes]}:
            return tuple(evaluate(size, values.sizes) for size in sizes)
        case [*parts]:
            return tuple(_packed(part, values) for part in parts)
    raise MLCError(f"the library's metadata is malformed: a result is {result!r}", hint="compile it again")


def allocate(spec: TensorSpec, sizes: Sizes, memory: HostMemory = HOST) -> Array:
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
        return memory.empty(shape, dtype_of(spec.dtype))
    except (MemoryError, ValueError, OverflowError):
        raise ResourceError(f"result {spec.name!r} of shape {shape} does not fit into memory") from None


def _operand(function: str, spec: TensorSpec | ScalarSpec, arg: object) -> Any:
    if isinstance(spec, ScalarSpec):
        return _scalar(function, spec, arg)
    return _tensor(function, spec, arg)


def _tensor(function: str, spec: TensorSpec, arg: object) -> tvm_ffi.Tensor:
    try:
        if isinstance(arg, np.ndarray):
            tensor, read_only = to_tensor(arg), not arg.flags.writeable
        else:
            tensor, read_only = from_dlpack(arg)
    except Exception as e:  # an object's own __dlpack__ may raise anything
        reason = (str(e).splitlines() or [type(e).__name__])[0]
        got = f"{type(arg).__name__} ({reason})"
        raise ArgumentError(f"{_name(function, spec)} is {got}; expected an array {spec}") from None
    if spec.written and read_only:
        raise ArgumentError(f"{_name(function, spec)} is read-only; the function writes into it")
    return tensor


def _dtype_name(tensor: tvm_ffi.Tensor) -> str:
    try:
        return str(tensor.dtype)
    except ValueError:  # complex, for instance
        return "of another kind"


def _scalar(function: str, spec: ScalarSpec, arg: object) -> int | float:
    kind = float if spec.dtype.startswith("float") else int
    convert = float if kind is float and hasattr(arg, "__float__") else operator.index  # float() would parse strings
    try:
        number = convert(arg)  # type: ignore[arg-type]
    except Exception:  # an object's own __float__ may raise anything
        raise ArgumentError(f"{_name(function, spec)} is {type(arg).__name__}; expected a number, {spec}") from None
    if kind is int and not -(1 << 63) <= number < 1 << 63:
        raise ArgumentError(f"{_name(function, spec)} is {number}; expected a number that fits {spec}")
    return number


def _check(function: str, spec: TensorSpec, tensor: tvm_ffi.Tensor, sizes: Sizes, on_device: bool = False) -> None:
    shape = tuple(tensor.shape)
    dtype = _dtype_name(tensor)
    if dtype != tensor_dtype(spec.dtype):
        problem = f"has dtype {dtype}"
    elif not matches(spec.shape, shape, sizes):
        known = ", ".join(f"{k} = {v}" for k, v in sizes.items() if any(k in str(d) for d in spec.shape))
        problem = f"has shape {list(shape)}"
        spec_text = f"{spec}" + (f" with {known}" if known else "")
        raise ArgumentError(f"{_name(function, spec)} {problem}; expected {spec_text}")
    elif not on_device and not is_on_cpu(tensor):
        problem = f"is on {device_name(tensor)}"
    elif not tensor.is_contiguous():
        problem = f"has strides {list(tensor.strides)}, it is not contiguous"
    elif tensor.data_ptr() % dtype_of(spec.dtype).itemsize:
        problem = f"begins at address {tensor.data_ptr():#x}, it is not aligned to its elements"
    else:
        return
    raise ArgumentError(f"{_name(function, spec)} {problem}; expected a contiguous, aligned array {spec} on the CPU")


def _check_memory(function: str, tensors: Sequence[tuple[TensorSpec, tvm_ffi.Tensor]]) -> None:
    """Raise ArgumentError when a written argument overlaps another one: kernels read and write in any order."""
    ranges = [_addresses(spec, tensor) for spec, tensor in tensors] if any(s.written for s, _ in tensors) else []
    for (spec, _), a in zip(tensors, ranges):
        for (other, _), b in zip(tensors, ranges):
            shared = max(a.start, b.start) < min(a.stop, b.stop)
            if spec.written and spec is not other and shared:
                problem = f"shares memory with argument {other.name!r}; the function writes into it"
                raise ArgumentError(f"{_name(function, spec)} {problem}")


def _addresses(spec: TensorSpec, tensor: tvm_ffi.Tensor) -> range:
    begin = tensor.data_ptr()
    return range(begin, begin + prod(tensor.shape) * dtype_of(spec.dtype).itemsize)


def _name(function: str, spec: TensorSpec | ScalarSpec) -> str:
    return f"{function}: argument {spec.name!r}"
