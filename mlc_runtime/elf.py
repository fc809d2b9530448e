"""Reads one data symbol from an ELF shared library without loading it: no code of the library runs."""

from __future__ import annotations

import mmap
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

from mlc_errors import MLCError, UnsupportedError

MACHINES = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
MAX_SYMBOLS, MAX_SECTIONS = 50_000, 1000

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SHARED_OBJECT, _LOAD, _DYNSYM = 3, 1, 11


@dataclass(frozen=True)
class DataSymbol:
    """The bytes of a symbol and the name of the machine that the library is made for."""

    machine: str
    data: bytes


@dataclass(frozen=True)
class _Segment:
    offset: int
    address: int
    size: int


@dataclass(frozen=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int


def read_data_symbol(path: Path, name: str) -> DataSymbol:
    """The contents of the data symbol `name` in the dynamic symbol table, up to its size or first NUL.

    Raises MLCError when the file is missing, not a 64-bit little-endian ELF shared library, truncated, or has no
    such symbol. Time does not depend on the size of the file.
    """
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            raise MLCError("cannot read the library: it is not a regular file", where=[str(path)])
        if info.st_size == 0:
            raise MLCError("the library is an empty file", where=[str(path)])
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as image:
            return _Reader(image, path).symbol(name)
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) else e
        raise MLCError(f"cannot read the library: {reason}", where=[str(path)]) from None
    except (struct.error, OverflowError):
        raise _truncated(path, "ends inside a table") from None


class _Reader:
    def __init__(self, image: mmap.mmap, path: Path):
        self.image, self.path = image, path
        if image[:4] != b"\x7fELF":
            raise MLCError(
                f"not a shared library: the file begins with {image[:4]!r}; expected an ELF file", where=[str(path)]
            )
        if len(image) < _HEADER.size:
            raise _truncated(path, f"has {len(image)} bytes")
        if image[4:6] != b"\x02\x01":
            raise UnsupportedError("the library is not a 64-bit little-endian ELF file", where=[str(path)])
        header = _HEADER.unpack_from(image)
        _, kind, machine, _, _, segments, sections, _, _, seg_size, seg_count, sec_size, sec_count, _ = header
        if kind != _SHARED_OBJECT:
            raise MLCError(f"not a shared library: ELF type {kind}; expected {_SHARED_OBJECT}", where=[str(path)])
        self.machine = MACHINES.get(machine, f"machine {machine}")
        if sec_count > MAX_SECTIONS:
            raise _truncated(path, f"names {sec_count} sections")
        self.segments = [s for i in range(seg_count) if (s := self._segment(segments + i * seg_size))]
        self.sections = [self._section(sections + i * sec_size) for i in range(sec_count)]

    def symbol(self, name: str) -> DataSymbol:
        address, size = self._find(name.encode())
        for segment in self.segments:
            if segment.address <= address < segment.address + segment.size:
                begin = address - segment.address + segment.offset
                end = segment.offset + segment.size
                return DataSymbol(self.machine, self._text(begin, min(end, begin + size) if size else end))
        raise MLCError(f"symbol {name} lies outside of the library's data", where=[str(self.path)])

    def _find(self, name: bytes) -> tuple[int, int]:
        table = next((s for s in self.sections if s.kind == _DYNSYM and s.link < len(self.sections)), None)
        table = table or _Section(_DYNSYM, 0, 0, 0)
        names = self.sections[table.link].offset if table.size else 0
        symbols = self._bytes(table.offset, min(table.size // _SYMBOL.size, MAX_SYMBOLS) * _SYMBOL.size)
        for at, _, _, section, address, size in _SYMBOL.iter_unpack(symbols):
            begin = names + at
            if section and self.image[begin : begin + len(name) + 1] == name + b"\0":
                return address, size
        raise MLCError(
            f"the library has no symbol {name.decode()}: it was not made by this compiler", where=[str(self.path)]
        )

    def _segment(self, at: int) -> _Segment | None:
        kind, _, offset, address, _, size, _, _ = _SEGMENT.unpack_from(self.image, at)
        if kind != _LOAD:
            return None
        if offset + size > len(self.image):
            raise _truncated(self.path, f"has {len(self.image)} bytes; its segments need {offset + size}")
        return _Segment(offset, address, size)

    def _section(self, at: int) -> _Section:
        _, kind, _, _, offset, size, link, _, _, _ = _SECTION.unpack_from(self.image, at)
        return _Section(kind, offset, size, link)

    def _text(self, begin: int, end: int) -> bytes:
        nul = self.image.find(b"\0", begin, end)
        return self._bytes(begin, (end if nul < 0 else nul) - begin)

    def _bytes(self, begin: int, size: int) -> bytes:
        if begin + size > len(self.image):
            raise _truncated(self.path, f"has {len(self.image)} bytes; a table needs {begin + size}")
        return self.image[begin : begin + size]


def _truncated(path: Path, why: str) -> MLCError:
    return MLCError(f"the library is truncated or damaged: it {why}", where=[str(path)], hint="compile it again")
