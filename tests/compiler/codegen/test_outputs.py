"""Outputs by suffix: libraries for static linking, of which several fit into one program, and text."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from mlc_compiler.codegen.outputs import check_output
from mlc_compiler.driver import build_library
from mlc_compiler.script import parse
from mlc_compiler.target import Target
from mlc_errors import UsageError

MODULE = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), dtype="float32"), y: R.Tensor((4,), dtype="float32")) -> R.Tensor((4,), dtype="float32"):
        with R.dataflow():
            z: R.Tensor((4,), dtype="float32") = R.{operator}(x, y)
            R.output(z)
        return z
"""
PROGRAM = """
#include <stdint.h>
#include <stdio.h>
typedef struct { void *data; int32_t device_type, device_id, ndim; uint8_t code, bits; uint16_t lanes;
                 int64_t *shape, *strides; uint64_t offset; } Tensor;
typedef struct { int32_t type; uint32_t pad; union { int64_t i; void *p; }; } Any;
typedef int Entry(void *, const Any *, int32_t, Any *);
Entry __tvm_ffi_sum_main, __tvm_ffi_sum_context_create, __tvm_ffi_product_main, __tvm_ffi_product_context_create;

static void run(Entry *create, Entry *entry) {
  float x[] = {1, 2, 3, 4}, y[] = {5, 6, 7, 8}, z[4];
  int64_t shape[] = {4};
  Tensor t[] = {{x, 1, 0, 1, 2, 32, 1, shape}, {y, 1, 0, 1, 2, 32, 1, shape}, {z, 1, 0, 1, 2, 32, 1, shape}};
  Any threads = {1, 0, {2}}, args[4], nothing;
  if (create(NULL, &threads, 1, &args[0])) puts("no context");
  for (int i = 0; i < 3; i++) args[i + 1] = (Any){7, 0, {.p = &t[i]}};
  if (entry(NULL, args, 4, &nothing)) puts("failed");
  printf("%g %g %g %g\\n", z[0], z[1], z[2], z[3]);
}

int main(void) {
  run(__tvm_ffi_sum_context_create, __tvm_ffi_sum_main);
  run(__tvm_ffi_product_context_create, __tvm_ffi_product_main);
}
"""


def built(folder: Path, operator: str, suffix: str, prefix: str = "") -> Path:
    output = folder / f"{operator}{suffix}"
    build_library(parse(MODULE.format(operator=operator)), Target("cpu"), output, prefix=prefix)
    return output


def objects_of(path: Path) -> list[Path]:
    """The files that the linker gets for an output."""
    if path.suffix != ".tar":
        return [path]
    folder = path.with_suffix(".objects")
    with tarfile.open(path) as tar:
        tar.extractall(folder, filter="data")
    return sorted(folder.iterdir())


@pytest.mark.parametrize("suffix", [".o", ".a", ".tar"])
def test_two_libraries_in_one_c_program(suffix: str, tmp_path: Path):
    libraries = [built(tmp_path, "add", suffix, "sum_"), built(tmp_path, "multiply", suffix, "product_")]
    (tmp_path / "program.c").write_text(PROGRAM)
    inputs = [part for library in libraries for part in objects_of(library)]
    program = tmp_path / "program"
    subprocess.run(["cc", "-o", program, tmp_path / "program.c", *inputs, "-lm", "-pthread"], check=True)
    result = subprocess.run([program], capture_output=True, text=True, check=True)
    assert result.stdout == "6 8 10 12\n5 12 21 32\n"


def test_equal_modules_give_equal_archives(tmp_path: Path):
    for suffix in (".a", ".tar", ".o"):
        first = built(tmp_path, "add", suffix).read_bytes()
        assert built(tmp_path, "add", suffix).read_bytes() == first


def test_text(tmp_path: Path):
    assert "define" in built(tmp_path, "add", ".ll").read_text()
    assert "__tvm_ffi_main:" in built(tmp_path, "add", ".s").read_text()


@pytest.mark.parametrize(
    ("name", "prefix", "message"),
    [
        ("lib.dylib", "", "--output: lib.dylib has the suffix '.dylib'; expected one of .so, .o, .a, .tar, .s, .ll"),
        ("lib", "", "--output: lib has the suffix ''; expected one of .so, .o, .a, .tar, .s, .ll"),
        ("lib.so", "a_", "--system-lib-prefix: lib.so is not for static linking; expected one of .o, .a, .tar"),
        ("lib.a", "7b_", "--system-lib-prefix: '7b_' cannot begin the name of a C function"),
    ],
)
def test_refusals(name: str, prefix: str, message: str):
    with pytest.raises(UsageError) as error:
        check_output(Path(name), prefix)
    assert error.value.message == message
