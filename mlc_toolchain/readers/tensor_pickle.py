"""The pickles of PyTorch checkpoints, interpreted without running code: dictionaries and tensors only.

A pickle is a program for a stack machine that can import and call anything. Here a global is only a name, looked up in
a short table of the constructors of tensors; every other name, and every instruction that tensors do not need, is an
error. No object outside of this file is ever created or called.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlc_toolchain.readers.base import MAX_RANK, CheckpointError, shown

MAX_PICKLE_BYTES = 64 << 20
MAX_INSTRUCTIONS = 4_000_000
MAX_PROTOCOL = 5

STORAGE_DTYPES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool",
}  # fmt: skip
TORCH_DTYPES = {
    "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2", "uint16": "uint16", "uint32": "uint32",
    "uint64": "uint64", "float32": "float32", "float16": "float16", "bfloat16": "bfloat16",
}  # fmt: skip


class PickleError(CheckpointError):
    """A pickle that is damaged or contains other objects than tensors."""


@dataclass(frozen=True)
class Storage:
    """A contiguous array of numbers elsewhere in the file. dtype is None for untyped bytes."""

    dtype: str | None
    key: str
    elements: int


@dataclass(frozen=True)
class StridedTensor:
    """A view of a storage: offset, sizes and strides in elements."""

    storage: Storage
    dtype: str
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class _Global:
    """An imported name: a constructor (``call``) or a dtype."""

    name: str
    call: Callable[[tuple], Any] | None = None
    dtype: str | None = None


class _Mark:
    pass


MARK = _Mark()


def load_tensor_pickle(data: bytes, path: Path, start: int = 0) -> tuple[Any, int]:
    """The object that a pickle at ``start`` of ``data`` describes, and where the pickle ends.

    Objects are None, bool, int, float, str, list, tuple, dict, Storage and StridedTensor. Raises PickleError.
    """
    machine = _Machine(data, start)
    try:
        return machine.run(), machine.position
    except _Refused as refusal:
        raise PickleError(f"{refusal} at byte {machine.position}", where=[str(path)], hint=refusal.hint) from None


class _Refused(Exception):
    def __init__(self, message: str, hint: str | None = None):
        super().__init__(message)
        self.hint = hint


class _Machine:
    """The state of an interpreter run: stack, memo and position."""

    def __init__(self, data: bytes, start: int):
        self.data = data
        self.position = start
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        for _ in range(MAX_INSTRUCTIONS):
            code = self.take(1)
            if code == b".":
                return self.pop()
            instruction = INSTRUCTIONS.get(code)
            if instruction is None:
                raise _Refused(f"the pickle uses instruction {code!r}, which no tensor needs", UNSAFE_HINT)
            instruction(self)
        raise _Refused(f"the pickle has more than {MAX_INSTRUCTIONS} instructions")

    def take(self, count: int) -> bytes:
        stop = self.position + count
        if stop > len(self.data):
            raise _Refused("the pickle is truncated")
        taken = self.data[self.position : stop]
        self.position = stop
        return taken

    def number(self, layout: str) -> int:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def line(self) -> str:
        stop = self.data.find(b"\n", self.position)
        if not 0 <= stop - self.position <= 1024:
            raise _Refused("the pickle is truncated")
        return self.take(stop - self.position + 1)[:-1].decode("utf-8", "replace")

    def text(self, layout: str) -> str:
        try:
            return self.take(self.number(layout)).decode("utf-8")
        except UnicodeDecodeError:
            raise _Refused("a string of the pickle is not UTF-8") from None

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        if not self.stack or self.stack[-1] is MARK:
            raise _Refused("the pickle takes more from its stack than there is")
        return self.stack.pop()

    def pop_to_mark(self) -> list[Any]:
        for depth in range(len(self.stack) - 1, -1, -1):
            if self.stack[depth] is MARK:
                items = self.stack[depth + 1 :]
                del self.stack[depth:]
                return items
        raise _Refused("the pickle closes what it never opened")

    def top(self, kind: type) -> Any:
        if not self.stack or not isinstance(self.stack[-1], kind):
            raise _Refused(f"the pickle fills something that is no {kind.__name__}")
        return self.stack[-1]

    def fetch(self, index: int) -> None:
        if index not in self.memo:
            raise _Refused("the pickle refers to what it never stored")
        self.push(self.memo[index])

    def store(self, index: int) -> None:
        self.memo[index] = self.top(object)

    def protocol(self) -> None:
        version = self.number("<B")
        if version > MAX_PROTOCOL:
            raise _Refused(f"the pickle has protocol {version}; expected at most {MAX_PROTOCOL}")

    def frame(self) -> None:
        self.take(8)

    def drop(self) -> None:
        self.pop()

    def make_tuple(self, count: int) -> None:
        items = [self.pop() for _ in range(count)]
        self.push(tuple(reversed(items)))

    def extend(self, items: list[Any]) -> None:
        self.top(list).extend(items)

    def set_items(self, items: list[Any]) -> None:
        target = self.top(dict)
        if len(items) % 2 or not all(isinstance(key, (str, int)) for key in items[::2]):
            raise _Refused("the pickle has a dictionary whose keys are not names")
        target.update(zip(items[::2], items[1::2]))

    def set_item(self) -> None:
        value, key = self.pop(), self.pop()
        self.set_items([key, value])

    def append(self) -> None:
        value = self.pop()
        self.extend([value])

    def named(self) -> None:
        self.push(_find(self.line(), self.line()))

    def named_from_stack(self) -> None:
        name, module = self.pop(), self.pop()
        self.push(_find(module, name))

    def call(self) -> None:
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, _Global) or function.call is None or not isinstance(arguments, tuple):
            raise _Refused("the pickle calls something that makes no tensor", UNSAFE_HINT)
        self.push(function.call(arguments))

    def build(self) -> None:
        """Ignore the attributes of a state dictionary (its _metadata), which conversion does not need."""
        self.pop()
        self.top(dict)

    def persistent(self) -> None:
        self.push(_storage(self.pop()))


UNSAFE_HINT = "the file could run code when it is loaded; take the checkpoint's safetensors instead"


def _little_integer(data: bytes) -> int:
    if len(data) > 16:
        raise _Refused(f"the pickle has an integer of {len(data)} bytes; expected at most 16")
    return int.from_bytes(data, "little", signed=True)


INSTRUCTIONS: dict[bytes, Callable[[_Machine], None]] = {
    b"\x80": _Machine.protocol,
    b"\x95": _Machine.frame,
    b"(": lambda m: m.push(MARK),
    b"0": _Machine.drop,
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    b"J": lambda m: m.push(m.number("<i")),
    b"K": lambda m: m.push(m.number("<B")),
    b"M": lambda m: m.push(m.number("<H")),
    b"G": lambda m: m.push(m.number(">d")),
    b"\x8a": lambda m: m.push(_little_integer(m.take(m.number("<B")))),
    b"X": lambda m: m.push(m.text("<I")),
    b"\x8c": lambda m: m.push(m.text("<B")),
    b"\x8d": lambda m: m.push(m.text("<Q")),
    b"T": lambda m: m.push(m.text("<I")),
    b"U": lambda m: m.push(m.text("<B")),
    b"}": lambda m: m.push({}),
    b"]": lambda m: m.push([]),
    b")": lambda m: m.push(()),
    b"t": lambda m: m.push(tuple(m.pop_to_mark())),
    b"\x85": lambda m: m.make_tuple(1),
    b"\x86": lambda m: m.make_tuple(2),
    b"\x87": lambda m: m.make_tuple(3),
    b"a": _Machine.append,
    b"e": lambda m: m.extend(m.pop_to_mark()),
    b"s": _Machine.set_item,
    b"u": lambda m: m.set_items(m.pop_to_mark()),
    b"q": lambda m: m.store(m.number("<B")),
    b"r": lambda m: m.store(m.number("<I")),
    b"\x94": lambda m: m.store(len(m.memo)),
    b"h": lambda m: m.fetch(m.number("<B")),
    b"j": lambda m: m.fetch(m.number("<I")),
    b"c": _Machine.named,
    b"\x93": _Machine.named_from_stack,
    b"R": _Machine.call,
    b"b": _Machine.build,
    b"Q": _Machine.persistent,
}


def _storage(described: Any) -> Storage:
    """("storage", type, key, location, elements) as torch.save describes one; older files add a sixth entry."""
    match described:
        case ("storage", _Global() as kind, str(key), str(), int(elements), *rest) if rest in ([], [None]):
            if type(elements) is int and elements >= 0 and (kind.dtype or kind.name == UNTYPED):
                return Storage(kind.dtype, key, elements)
    raise _Refused("the pickle describes a storage in an unknown way")


def _tensor(arguments: tuple) -> StridedTensor:
    """torch._utils._rebuild_tensor and _v2: storage, offset, sizes, strides, then what conversion does not need."""
    match arguments:
        case (Storage(dtype=str(dtype)) as storage, offset, sizes, strides, *_):
            return _strided(storage, dtype, offset, sizes, strides)
    raise _Refused("the pickle describes a tensor in an unknown way")


def _tensor_v3(arguments: tuple) -> StridedTensor:
    """torch._utils._rebuild_tensor_v3: as v2 on untyped bytes, with the dtype as seventh argument."""
    match arguments:
        case (Storage(dtype=None) as storage, offset, sizes, strides, _, _, _Global(dtype=str(dtype)), *_):
            return _strided(storage, dtype, offset, sizes, strides)
    raise _Refused("the pickle describes a tensor in an unknown way")


def _strided(storage: Storage, dtype: str, offset: Any, sizes: Any, strides: Any) -> StridedTensor:
    if not (_counts((offset,)) and _counts(sizes) and _counts(strides) and len(sizes) == len(strides) <= MAX_RANK):
        raise _Refused("the pickle has a tensor with impossible sizes")
    return StridedTensor(storage, dtype, offset, sizes, strides)


def _counts(values: Any) -> bool:
    return isinstance(values, tuple) and all(type(value) is int and 0 <= value < 2**48 for value in values)


def _parameter(arguments: tuple) -> StridedTensor:
    match arguments:
        case (StridedTensor() as tensor, *_):
            return tensor
    raise _Refused("the pickle describes a parameter in an unknown way")


def _ordered_dict(arguments: tuple) -> dict:
    if arguments not in ((), ([],)):
        raise _Refused("the pickle fills a dictionary in an unknown way")
    return {}


UNTYPED = "UntypedStorage"
GLOBALS = {
    ("collections", "OrderedDict"): _Global("OrderedDict", _ordered_dict),
    ("torch._utils", "_rebuild_tensor"): _Global("_rebuild_tensor", _tensor),
    ("torch._utils", "_rebuild_tensor_v2"): _Global("_rebuild_tensor_v2", _tensor),
    ("torch._utils", "_rebuild_tensor_v3"): _Global("_rebuild_tensor_v3", _tensor_v3),
    ("torch._utils", "_rebuild_parameter"): _Global("_rebuild_parameter", _parameter),
    ("torch.storage", UNTYPED): _Global(UNTYPED),
    ("torch", "Size"): _Global("Size", lambda arguments: tuple(arguments[0]) if arguments else ()),
    **{("torch", name): _Global(name, dtype=dtype) for name, dtype in (STORAGE_DTYPES | TORCH_DTYPES).items()},
}


def _find(module: Any, name: Any) -> _Global:
    found = GLOBALS.get((module, name)) if isinstance(module, str) and isinstance(name, str) else None
    if found is None:
        what = f"{module}.{name}" if isinstance(module, str) and isinstance(name, str) else "an unnamed object"
        raise _Refused(f"the pickle imports {shown(what)}, which is no part of a tensor", UNSAFE_HINT)
    return found
