"""Loading a library's kernels into a context: machine code for the device's architecture, else PTX."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ...codegen import llvm_ir as ll
from ...codegen.arithmetic import CodegenError
from ...codegen.host.code import field, function
from ...codegen.loops import for_range
from ...codegen.values import I8, I32, I64, PTR, VOID, i32, i64, is_null
from .context import DEVICE, FUNCTIONS
from .driver import constant_table
from .faults import Faults
from .host_functions import Launcher
from .launches import Images
from .machine import STATIC_SHARED_BYTES, capability

LOG_BYTES = 256

# CUdevice_attribute, CUfunction_attribute and CUjit_option (cuda.h).
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76
_MAX_DYNAMIC_SHARED = 8
_ERROR_LOG, _ERROR_LOG_BYTES = 5, 6

_ANY_LATER = 1 << 30


def ptx_arch(ptx: str) -> str:
    """The architecture that a PTX module names in ``.target``. Raises CodegenError without one."""
    found = re.search(r"^\s*\.target\s+(sm_\d+[af]?)", ptx, re.MULTILINE)
    if found is None:
        raise CodegenError("PTX without the directive .target")
    return found[1]


def ptx_capabilities(arch: str) -> tuple[int, int]:
    """The least and greatest compute capability on which PTX for an architecture runs (PTX ISA, directive .target).

    With the suffix a it runs on that architecture only, with f on its family, without one on all later ones.
    """
    least = capability(arch)
    if arch.endswith("a"):
        return least, least
    return least, least - least % 10 + 9 if arch.endswith("f") else _ANY_LATER


class Loader:
    """Defines the loading and unloading of modules in a host module."""

    def __init__(self, faults: Faults, launcher: Launcher, images: Sequence[Images]):
        self.faults, self.launcher, self.images = faults, launcher, images
        self.module, self.driver = faults.module, faults.driver
        self.modules = FUNCTIONS + 8 * len(launcher.kernels)  # offset of the CUmodules in a context
        self.end = self.modules + 8 * len(images)
        self.load = self._define_load()

    def _rows(self) -> Iterator[list[ll.Value]]:
        """A row for each image: module, least and greatest compute capability, data; machine code before PTX."""
        for number, images in enumerate(self.images):
            for arch, code in images.cubins.items():
                exact = i64(capability(arch))
                yield [i64(number), exact, exact, self._data(bytes(code))]
            limits = [i64(limit) for limit in ptx_capabilities(ptx_arch(images.ptx))]
            yield [i64(number), *limits, self._data(images.ptx.encode() + b"\0")]

    def _data(self, raw: bytes) -> ll.Value:
        array = ll.ArrayType(I8, len(raw))
        data = ll.GlobalVariable(self.module, array, self.module.get_unique_name("image"))
        data.initializer, data.global_constant, data.linkage = ll.Constant(array, bytearray(raw)), True, "internal"
        data.align = 64
        return data

    def _architectures(self) -> str:
        """The architectures that the library is compiled for, as text for messages."""
        cubins = sorted({arch for images in self.images for arch in images.cubins}, key=capability)
        return ", ".join([*cubins, *sorted({f"{ptx_arch(images.ptx)} (PTX)" for images in self.images})])

    def _capability(self, b: ll.IRBuilder, context: ll.Value) -> ll.Value:
        """The compute capability of the context's device, times ten, as i64."""
        device, parts = b.load(field(b, context, DEVICE), typ=I32), []
        for attribute in (_CAPABILITY_MAJOR, _CAPABILITY_MINOR):
            slot = b.alloca(I32, "attribute")
            b.store(i32(0), slot)
            self.driver.call(b, "cuDeviceGetAttribute", slot, i32(attribute), device)
            parts.append(b.zext(b.load(slot, typ=I32), I64))
        return b.add(b.mul(parts[0], i64(10)), parts[1])

    def _define_load(self) -> ll.Function:
        """``i32 load(ptr context)``: load modules and find kernels; 0, or -1 with the reason in the faults' text.

        For each module, the first image that the driver accepts, of those that can run on the device, is loaded.
        """
        load_image, find = self._define_load_image(), self._define_find()
        fn, b = function(self.module, "mlc_cuda_load", I32, [PTR])
        context, flags = fn.args[0], ll.ArrayType(I32, max(len(self.images), 1))
        tried = b.alloca(flags, "tried")
        b.store(ll.Constant(flags, None), tried)
        arch = self._capability(b, context)
        self._try_images(b, context, arch, tried, load_image)
        self._require_modules(b, context, arch, tried)
        b.ret(b.call(find, [context]))
        return fn

    def _try_images(
        self, b: ll.IRBuilder, context: ll.Value, arch: ll.Value, tried: ll.Value, load_image: ll.Function
    ) -> None:
        """Load, for each module, the first image that can run on the device and that the driver accepts.

        tried: int32 for each module, 1 when it has such an image.
        """
        rows = list(self._rows())
        table = constant_table(self.module, "mlc_cuda_images", rows)

        def visit(i: ll.Value) -> None:
            row = field(b, table, b.mul(i, i64(32)))
            number, least, greatest = (b.load(field(b, row, 8 * j), typ=I64) for j in range(3))
            at = self._module_at(b, context, number)
            runs = b.and_(b.icmp_signed(">=", arch, least), b.icmp_signed("<=", arch, greatest))
            with b.if_then(b.and_(runs, is_null(b, b.load(at, typ=PTR)))):
                b.store(i32(1), field(b, tried, b.mul(number, i64(4))))
                b.call(load_image, [at, b.load(field(b, row, 24), typ=PTR)])

        for_range(b, "image", i64(0), i64(len(rows)), visit)

    def _require_modules(self, b: ll.IRBuilder, context: ll.Value, arch: ll.Value, tried: ll.Value) -> None:
        """Emit a return of -1 when a module is not loaded; the faults' text has the reason."""

        def visit(i: ll.Value) -> None:
            with b.if_then(is_null(b, b.load(self._module_at(b, context, i), typ=PTR))):
                is_tried = b.load(field(b, tried, b.mul(i, i64(4))), typ=I32)
                with b.if_then(b.icmp_unsigned("!=", is_tried, i32(0))):
                    b.ret(i32(-1))
                made = f"the library is compiled for {self._architectures()}; the GPU is sm_%lld"
                self.faults.write(b, f"{made}; compile it for this GPU", arch)
                b.ret(i32(-1))

        for_range(b, "module", i64(0), i64(len(self.images)), visit)

    def _module_at(self, b: ll.IRBuilder, context: ll.Value, number: ll.Value) -> ll.Value:
        """The address of a CUmodule in a context."""
        return field(b, context, b.add(b.mul(number, i64(8)), i64(self.modules)))

    def _define_load_image(self) -> ll.Function:
        """``void load_image(ptr module, ptr data)``: load an image; an error and the log become the faults' text."""
        fn, b = function(self.module, "mlc_cuda_load_image", VOID, [PTR, PTR])
        log = b.alloca(ll.ArrayType(I8, LOG_BYTES), "log")
        options = b.alloca(ll.ArrayType(I32, 2), "options")
        values = b.alloca(ll.ArrayType(I64, 2), "values", align=8)
        b.store(ll.Constant(I8, 0), log)
        for i, (option, value) in enumerate(((_ERROR_LOG, b.ptrtoint(log, I64)), (_ERROR_LOG_BYTES, i64(LOG_BYTES)))):
            b.store(i32(option), field(b, options, 4 * i))
            b.store(value, field(b, values, 8 * i))
        status = self.driver.call(b, "cuModuleLoadDataEx", *fn.args, i32(2), options, values)
        with b.if_then(b.icmp_signed("==", status, i32(0))):
            b.ret_void()
        b.store(ll.Constant(PTR, None), fn.args[0])
        b.call(self.faults.describe, [status, self.faults.errors.text("loading the kernels"), log])
        b.ret_void()
        return fn

    def _define_find(self) -> ll.Function:
        """``i32 find(ptr context)``: fill the table of kernels; 0, or -1 with the reason in the faults' text."""
        fn, b = function(self.module, "mlc_cuda_find_kernels", I32, [PTR])
        context = fn.args[0]

        def find(i: ll.Value) -> None:
            row = field(b, self.launcher.table, b.mul(i, i64(32)))
            symbol, number, shared = (b.load(field(b, row, 8 * j), typ=t) for j, t in enumerate((PTR, I64, I64)))
            owner = b.load(self._module_at(b, context, number), typ=PTR)
            at = field(b, context, b.add(b.mul(i, i64(8)), i64(FUNCTIONS)))
            self._require(b, self.driver.call(b, "cuModuleGetFunction", at, owner, symbol), symbol)
            with b.if_then(b.icmp_signed(">", shared, i64(STATIC_SHARED_BYTES))):
                limit = [b.load(at, typ=PTR), i32(_MAX_DYNAMIC_SHARED), b.trunc(shared, I32)]
                self._require(b, self.driver.call(b, "cuFuncSetAttribute", *limit), symbol)

        for_range(b, "kernel", i64(0), i64(len(self.launcher.kernels)), find)
        b.ret(i32(0))
        return fn

    def _require(self, b: ll.IRBuilder, status: ll.Value, symbol: ll.Value) -> None:
        with b.if_then(b.icmp_signed("!=", status, i32(0)), likely=False):
            b.call(self.faults.describe, [status, symbol, self.faults.errors.text("")])
            b.ret(i32(-1))

    def unload(self, b: ll.IRBuilder, context: ll.Value) -> None:
        """Emit code that unloads the modules that are loaded."""

        def unload(i: ll.Value) -> None:
            loaded = b.load(self._module_at(b, context, i), typ=PTR)
            with b.if_then(b.not_(is_null(b, loaded))):
                self.driver.call(b, "cuModuleUnload", loaded)

        for_range(b, "module", i64(0), i64(len(self.images)), unload)
