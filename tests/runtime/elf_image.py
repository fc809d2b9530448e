"""A minimal ELF shared library with one data symbol."""

from __future__ import annotations

import struct


def elf_image(symbol: bytes, data: bytes, *, machine: int = 62, kind: int = 3, size: int | None = None) -> bytes:
    """Header, one loaded segment at address 0x1000, the tables of sections and dynamic symbols, then `data`."""
    names = b"\0other\0" + symbol + b"\0"
    symbols = struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)
    symbols += struct.pack("<IBBHQQ", 1, 0x11, 0, 1, 0x1000, 4)
    header, segment, section = 64, 56, 64
    at_names = header + segment + 3 * section
    at_symbols = at_names + len(names)
    at_data = at_symbols + len(symbols) + 24
    end = at_data + len(data)
    address = 0x1000 + at_data
    symbols += struct.pack("<IBBHQQ", 7, 0x11, 0, 1, address, len(data) if size is None else size)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    sections = header + segment
    head = ident + struct.pack("<HHIQQQIHHHHHH", kind, machine, 1, 0, header, sections, 0, 64, 56, 1, 64, 3, 0)
    load = struct.pack("<IIQQQQQQ", 1, 4, 0, 0x1000, 0x1000, end, end, 4096)
    table = bytes(64)
    table += struct.pack("<IIQQQQIIQQ", 0, 11, 2, 0, at_symbols, len(symbols), 2, 1, 8, 24)
    table += struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, at_names, len(names), 0, 0, 1, 0)
    return head + load + table + names + symbols + data
