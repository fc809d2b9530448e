"""Offsets of the members of an uncompressed zip archive, as PyTorch writes them; every size is checked."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from mlc_toolchain.readers.base import MAX_TENSORS, CheckpointError, MappedFile, shown

END, END_64, LOCATOR_64, ENTRY, LOCAL = b"PK\5\6", b"PK\6\6", b"PK\6\7", b"PK\1\2", b"PK\3\4"
END_BYTES, LOCATOR_BYTES, ENTRY_BYTES, LOCAL_BYTES = 22, 20, 46, 30
MAX_COMMENT = 1 << 16
MAX_DIRECTORY_BYTES = 64 << 20
IN_ZIP64 = 0xFFFFFFFF
ZIP64_FIELD = 1


@dataclass(frozen=True)
class Member:
    """Offset and size of a member inside the archive."""

    offset: int
    nbytes: int


def zip_members(file: MappedFile) -> dict[str, Member]:
    """The members of an archive by name. Raises CheckpointError for damaged, compressed or overlapping ones."""
    count, offset, nbytes = _directory(file)
    if count > MAX_TENSORS or nbytes > MAX_DIRECTORY_BYTES or offset + nbytes > file.size:
        raise _error(
            file, f"the archive claims {count} members in {nbytes} bytes at {offset}; the file has {file.size}"
        )
    directory = file.bytes(offset, nbytes)
    members: dict[str, Member] = {}
    position = 0
    for _ in range(count):
        name, member, position = _entry(file, directory, position)
        if name in members:
            raise _error(file, f"the archive holds {shown(name)} twice")
        members[name] = member
    _check_overlap(file, members)
    return members


def _directory(file: MappedFile) -> tuple[int, int, int]:
    """Number of entries, offset and size of the central directory."""
    tail_start = max(0, file.size - END_BYTES - MAX_COMMENT)
    tail = file.bytes(tail_start, file.size - tail_start)
    at = tail.rfind(END)
    if at < 0 or len(tail) - at < END_BYTES:
        raise _error(file, "the archive has no end record", hint="the file is truncated; download it again")
    count, nbytes, offset = struct.unpack("<HII", tail[at + 10 : at + 20])
    locator = tail_start + at - LOCATOR_BYTES
    if locator >= 0 and file.bytes(locator, 4) == LOCATOR_64:
        return _directory_64(file, struct.unpack("<Q", file.bytes(locator + 8, 8))[0])
    return count, offset, nbytes


def _directory_64(file: MappedFile, at: int) -> tuple[int, int, int]:
    record = file.bytes(at, 56) if at <= file.size else b""
    if len(record) < 56 or record[:4] != END_64:
        raise _error(file, "the archive's zip64 record is damaged")
    count, nbytes, offset = struct.unpack("<QQQ", record[32:56])
    return count, offset, nbytes


def _entry(file: MappedFile, directory: bytes, position: int) -> tuple[str, Member, int]:
    """Name and bytes of the member whose entry starts at ``position``, and the position of the next entry."""
    fixed = directory[position : position + ENTRY_BYTES]
    if len(fixed) < ENTRY_BYTES or fixed[:4] != ENTRY:
        raise _error(file, f"the archive's directory is damaged at byte {position}")
    flags, method = struct.unpack("<HH", fixed[8:12])
    packed, size, name_bytes, extra_bytes, comment_bytes = struct.unpack("<IIHHH", fixed[20:34])
    name_start = position + ENTRY_BYTES
    extra_start = name_start + name_bytes
    stop = extra_start + extra_bytes
    name = directory[name_start:extra_start].decode("utf-8", "replace")
    local = struct.unpack("<I", fixed[42:46])[0]
    size, packed, local = _wide(directory[extra_start:stop], size, packed, local)
    if method != 0 or flags & 1 or size != packed:
        raise _error(file, f"member {shown(name)} is compressed or encrypted; expected it stored")
    return name, _member(file, name, local, size), stop + comment_bytes


def _wide(extra: bytes, *values: int) -> tuple[int, ...]:
    """Sizes and offset, replaced by 64-bit values from the entry's extra field where they are saturated."""
    position, found = 0, b""
    while position + 4 <= len(extra):
        kind, length = struct.unpack("<HH", extra[position : position + 4])
        if kind == ZIP64_FIELD:
            found = extra[position + 4 : position + 4 + length]
        position += 4 + length
    wide = iter(struct.unpack(f"<{len(found) // 8}Q", found[: len(found) // 8 * 8]))
    return tuple(next(wide, value) if value == IN_ZIP64 else value for value in values)


def _member(file: MappedFile, name: str, local: int, size: int) -> Member:
    header = file.bytes(local, LOCAL_BYTES) if local <= file.size else b""
    if len(header) < LOCAL_BYTES or header[:4] != LOCAL:
        raise _error(file, f"member {shown(name)} has no header at byte {local}")
    name_bytes, extra_bytes = struct.unpack("<HH", header[26:30])
    start = local + LOCAL_BYTES + name_bytes + extra_bytes
    if start + size > file.size:
        raise _error(file, f"member {shown(name)} ends at byte {start + size}; the file has {file.size}")
    return Member(start, size)


def _check_overlap(file: MappedFile, members: dict[str, Member]) -> None:
    position = 0
    for name, member in sorted(members.items(), key=lambda item: (item[1].offset, item[1].nbytes)):
        if member.offset < position:
            raise _error(file, f"member {shown(name)} overlaps the one before it")
        position = member.offset + member.nbytes


def _error(file: MappedFile, message: str, hint: str | None = None) -> CheckpointError:
    return CheckpointError(message, where=[str(file.path)], hint=hint)
