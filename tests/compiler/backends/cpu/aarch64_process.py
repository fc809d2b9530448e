"""An emulated AArch64 process: a shared library in its memory, the C library in Python, one thread.

The CPU is Unicorn's most capable one. It has ``sdot`` but comes from before FEAT_I8MM: ``usdot`` traps, and is computed
here.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
from unicorn import UC_ARCH_ARM64, UC_HOOK_CODE, UC_HOOK_INTR, UC_MODE_ARM, UC_PROT_READ, UC_PROT_WRITE, Uc, UcError
from unicorn.arm64_const import (
    UC_ARM64_REG_CP_REG,
    UC_ARM64_REG_D0,
    UC_ARM64_REG_LR,
    UC_ARM64_REG_PC,
    UC_ARM64_REG_SP,
    UC_ARM64_REG_TPIDR_EL0,
    UC_ARM64_REG_V0,
    UC_ARM64_REG_X0,
    UC_CPU_ARM64_MAX,
)

LIBRARY, IMPORTS, STACK, HEAP = 0x1000_0000, 0x2000_0000, 0x3000_0000, 0x4000_0000
STACK_BYTES, HEAP_BYTES, PAGE, HOST_PAGE = 8 << 20, 1 << 30, 1 << 16, 1 << 12
RET = struct.pack("<I", 0xD65F03C0)
RETURN = IMPORTS + PAGE - len(RET)  # the return address of called functions
PROCESS_ID = 4711

# Floating point, SIMD and SVE do not trap; SVE registers have 256 bits, as those of Neoverse V1.
SYSTEM_REGISTERS = {
    (1, 0, 3, 0, 2): 0b11 << 20 | 0b11 << 16,  # CPACR_EL1: FPEN, ZEN
    (1, 1, 3, 6, 2): 1 << 8,  # CPTR_EL3: EZ
    **{(1, 2, 3, level, 0): 1 for level in (6, 4, 0)},  # ZCR_EL3, ZCR_EL2, ZCR_EL1: LEN
}

# ELF: the entries of the dynamic table, and relocations of AArch64.
LOAD, DYNAMIC = 1, 2
PLTRELSZ, HASH, STRTAB, SYMTAB, RELA, RELASZ, JMPREL = 2, 4, 5, 6, 7, 8, 23
ABS64, GLOB_DAT, JUMP_SLOT, RELATIVE, TLSDESC = 257, 1025, 1026, 1027, 1031


class Process:
    """The shared library ``path``, loaded. ``call`` runs its functions, by address; see ``symbols``."""

    def __init__(self, path: Path):
        self.uc = Uc(UC_ARCH_ARM64, UC_MODE_ARM)
        self.uc.ctl_set_cpu_model(UC_CPU_ARM64_MAX)
        for register, value in SYSTEM_REGISTERS.items():
            self.uc.reg_write(UC_ARM64_REG_CP_REG, (*register, value))
        for begin, size in ((STACK, STACK_BYTES), (HEAP, HEAP_BYTES), (IMPORTS, PAGE)):
            self.uc.mem_map(begin, size)
        self.free = HEAP
        self.shared: set[int] = set()
        self.imports: list[str] = []
        self.traps: set[str] = set()
        self.uc.mem_write(IMPORTS, RET * (PAGE // len(RET)))
        self.uc.hook_add(UC_HOOK_CODE, self._import_called, None, IMPORTS, IMPORTS + PAGE - 1)
        self.uc.hook_add(UC_HOOK_INTR, self._trapped)
        self.thread_local = self.allocate(PAGE)
        self.uc.reg_write(UC_ARM64_REG_TPIDR_EL0, self.thread_local)
        self.symbols: dict[str, int] = {}
        self._load(path.read_bytes())

    def allocate(self, nbytes: int) -> int:
        """The address of new memory, a multiple of 64."""
        address, self.free = self.free, self.free + -(-max(nbytes, 1) // 64) * 64
        assert self.free <= HEAP + HEAP_BYTES, "the emulated process is out of memory"
        return address

    def place(self, data: bytes) -> int:
        """The address of a copy of ``data``."""
        address = self.allocate(len(data))
        self.uc.mem_write(address, data)
        return address

    def share(self, address: int, nbytes: int) -> None:
        """Map memory of this process into the emulated one, at the same address."""
        pages = range(address // HOST_PAGE, -(-(address + nbytes) // HOST_PAGE))
        new = [page for page in pages if page not in self.shared]
        self.shared.update(new)
        while new:
            count = next((i for i, page in enumerate(new) if page != new[0] + i), len(new))
            begin, size = new[0] * HOST_PAGE, count * HOST_PAGE
            self.uc.mem_map_ptr(begin, size, UC_PROT_READ | UC_PROT_WRITE, begin)
            new = new[count:]

    def call(self, address: int, *args: int) -> int:
        """Run a function of integers and pointers, at most eight; returns its result."""
        for register, value in enumerate(args):
            self.uc.reg_write(UC_ARM64_REG_X0 + register, value & (1 << 64) - 1)
        self.uc.reg_write(UC_ARM64_REG_SP, STACK + STACK_BYTES - PAGE)
        self.uc.reg_write(UC_ARM64_REG_LR, RETURN)
        try:
            self.uc.emu_start(address, RETURN)
        except UcError as error:
            at = self.uc.reg_read(UC_ARM64_REG_PC)
            code = bytes(self.uc.mem_read(at, 4))[::-1].hex()
            raise AssertionError(f"{error} at {at - LIBRARY:#x} of the library: {code}") from None
        return int(self.uc.reg_read(UC_ARM64_REG_X0))

    def last_error(self) -> str:
        """The text in the library's thread-local ``__mlc_last_error``."""
        return self._text(self.thread_local + self.symbols["__mlc_last_error"] - LIBRARY)

    # -- the library --------------------------------------------------------------------------------------------

    def _load(self, image: bytes) -> None:
        offset, size, count = (*struct.unpack_from("<Q", image, 32), *struct.unpack_from("<HH", image, 54))
        headers = [struct.unpack_from("<IIQQQQQQ", image, offset + i * size) for i in range(count)]
        end = max(address + in_memory for kind, _, _, address, _, _, in_memory, _ in headers if kind == LOAD)
        self.uc.mem_map(LIBRARY, -(-end // PAGE) * PAGE)
        for kind, _, at, address, _, in_file, _, _ in headers:
            if kind == LOAD:
                self.uc.mem_write(LIBRARY + address, image[at : at + in_file])
        at, length = next((address, size) for kind, _, _, address, _, _, size, _ in headers if kind == DYNAMIC)
        table = dict(struct.iter_unpack("<QQ", self.uc.mem_read(LIBRARY + at, length)))
        _, count = struct.unpack("<II", self.uc.mem_read(LIBRARY + table[HASH], 8))
        names = [self._symbol(table, i) for i in range(count)]
        self.symbols = {name: LIBRARY + value for name, value, section in names if section}
        for begin, nbytes in ((table.get(RELA, 0), table.get(RELASZ, 0)), (table[JMPREL], table[PLTRELSZ])):
            for place, info, addend in struct.iter_unpack("<QQq", self.uc.mem_read(LIBRARY + begin, nbytes)):
                self._relocate(LIBRARY + place, info & 0xFFFFFFFF, names[info >> 32], addend)

    def _symbol(self, table: dict[int, int], index: int) -> tuple[str, int, int]:
        """Name, value and section of a symbol; the section is 0 for undefined symbols."""
        entry = self.uc.mem_read(LIBRARY + table[SYMTAB] + 24 * index, 24)
        name, _, _, section, value, _ = struct.unpack("<IBBHQQ", entry)
        return self._text(LIBRARY + table[STRTAB] + name), value, section

    def _relocate(self, place: int, kind: int, symbol: tuple[str, int, int], addend: int) -> None:
        name, value, section = symbol
        if kind == TLSDESC:  # a resolver and its argument; what it gives is the distance from the thread's pointer
            words = (self._import("tlsdesc"), value + addend)
        elif kind == RELATIVE:
            words = (LIBRARY + addend,)
        else:
            assert kind in (ABS64, GLOB_DAT, JUMP_SLOT), f"relocation {kind} of {name}"
            words = (LIBRARY + value + addend if section else self._import(name),)
        self.uc.mem_write(place, struct.pack(f"<{len(words)}Q", *words))

    def _import(self, name: str) -> int:
        if name.startswith("TVMFFI"):
            return 0  # weak: the process has no TVM FFI
        if name not in self.imports:
            self.imports.append(name)
        return IMPORTS + len(RET) * self.imports.index(name)

    # -- the C library ------------------------------------------------------------------------------------------

    def _import_called(self, uc: Uc, address: int, size: int, data: object) -> None:
        index = (address - IMPORTS) // len(RET)
        if index < len(self.imports):
            name = self.imports[index]
            own: Callable[[], int | None] | None = getattr(self, f"c_{name}", None)
            result = self._mathematics(name) if own is None else own()
            if result is not None:
                uc.reg_write(UC_ARM64_REG_X0, result)

    def _arg(self, register: int) -> int:
        return int(self.uc.reg_read(UC_ARM64_REG_X0 + register))

    def _text(self, address: int) -> str:
        end = address
        while self.uc.mem_read(end, 1) != b"\0":
            end += 1
        return bytes(self.uc.mem_read(address, end - address)).decode()

    def _mathematics(self, name: str) -> None:
        """A function of doubles, in this machine's C library."""
        function = ctypes.CDLL("libm.so.6")[name]
        count = {"atan2": 2, "fmod": 2, "hypot": 2, "pow": 2, "fma": 3}.get(name, 1)
        function.restype, function.argtypes = ctypes.c_double, (ctypes.c_double,) * count
        bits = [self.uc.reg_read(UC_ARM64_REG_D0 + i).to_bytes(8, "little") for i in range(count)]
        result = function(*(struct.unpack("<d", b)[0] for b in bits))
        self.uc.reg_write(UC_ARM64_REG_D0, int.from_bytes(struct.pack("<d", result), "little"))

    def c_tlsdesc(self) -> int:
        return int.from_bytes(self.uc.mem_read(self._arg(0) + 8, 8), "little")

    def c_aligned_alloc(self) -> int:
        return self.allocate(self._arg(1))

    def c_memset(self) -> None:
        self.uc.mem_write(self._arg(0), bytes([self._arg(1) & 255]) * self._arg(2))

    def c_memcpy(self) -> None:
        self.uc.mem_write(self._arg(0), bytes(self.uc.mem_read(self._arg(1), self._arg(2))))

    c_memmove = c_memcpy

    def c_free(self) -> None:
        """Does nothing: memory is not reused."""

    def c_getpid(self) -> int:
        return PROCESS_ID

    def c_pthread_mutex_init(self) -> int:
        return 0

    c_pthread_cond_init = c_pthread_mutex_init

    def c_snprintf(self) -> None:
        """Formats error messages; variadic integers and strings are in registers, then on the stack."""
        stack = int(self.uc.reg_read(UC_ARM64_REG_SP))
        words = struct.unpack("<8Q", self.uc.mem_read(stack, 64))
        given = iter([*(self._arg(i) for i in range(3, 8)), *words])

        def argument(found: re.Match[str]) -> str:
            value = next(given)
            return self._text(value) if found[0] == "%s" else str(ctypes.c_int64(value).value)

        message = re.sub(r"%(s|d|lld)", argument, self._text(self._arg(2)))
        self.uc.mem_write(self._arg(0), message.encode()[: self._arg(1) - 1] + b"\0")

    # -- instructions that Unicorn does not know ------------------------------------------------------------------

    def _trapped(self, uc: Uc, number: int, data: object) -> None:
        at = int(uc.reg_read(UC_ARM64_REG_PC))
        word = int.from_bytes(uc.mem_read(at, 4), "little")
        rd, rn, rm = (UC_ARM64_REG_V0 + (word >> shift & 31) for shift in (0, 5, 16))
        if word & 0xBFE0FC00 == 0x0E809C00:  # usdot vd.4s, vn.16b, vm.16b
            signed = self._vector(rm).view(np.int8)
        elif word & 0xBFC0F400 == 0x0F80F000:  # usdot vd.4s, vn.16b, vm.4b[index]
            index = (word >> 11 & 1) << 1 | word >> 21 & 1
            signed = np.tile(self._vector(rm).view(np.int8)[4 * index : 4 * index + 4], 4)
        else:
            uc.emu_stop()
            raise AssertionError(f"the instruction {word:#010x} at {at - LIBRARY:#x} of the library traps")
        self.traps.add("usdot")
        products = self._vector(rn).astype(np.int32) * signed
        sums = self._vector(rd).view(np.int32) + products.reshape(4, 4).sum(axis=1, dtype=np.int32)
        if not word >> 30 & 1:  # of the lower half of the registers
            sums[2:] = 0
        uc.reg_write(rd, int.from_bytes(sums.tobytes(), "little"))
        uc.reg_write(UC_ARM64_REG_PC, at + 4)

    def _vector(self, register: int) -> np.ndarray:
        return np.frombuffer(self.uc.reg_read(register).to_bytes(16, "little"), np.uint8)
