"""C functions from sources and object files, linked into the library."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from tvm_ffi.libinfo import find_dlpack_include_path

from mlc_compiler import build, nn
from mlc_compiler.ir.structural import first_difference
from mlc_compiler.nn import spec
from mlc_compiler.script import parse, script
from mlc_errors import MLCError, UnsupportedError, UsageError

SOURCE = r"""
#include <dlpack/dlpack.h>

static int64_t elements(const DLTensor *t) {
  int64_t n = 1;
  for (int i = 0; i < t->ndim; ++i) n *= t->shape[i];
  return n;
}

int scaled_sum(DLTensor *a, DLTensor *b, int64_t factor, DLTensor *sum, DLTensor *difference) {
  if (elements(a) != elements(b)) return 1;
  for (int64_t i = 0; i < elements(a); ++i) {
    float x = ((float *)a->data)[i], y = ((float *)b->data)[i];
    ((float *)sum->data)[i] = factor * (x + y);
    ((float *)difference->data)[i] = x - y;
  }
  return 0;
}

int checked(DLTensor *x, DLTensor *out) {
  for (int64_t i = 0; i < elements(x); ++i) {
    if (((float *)x->data)[i] < 0) return 7;
    ((float *)out->data)[i] = ((float *)x->data)[i] * 0.5f;
  }
  return 0;
}
"""
SYMBOLS = {"scaled_sum": lambda a, b, factor: [a, a], "checked": lambda x: x}
X, Y = (np.random.default_rng(i).random((5, 3), np.float32) for i in range(2))


class Net(nn.Module):
    def __init__(self, functions: nn.ExternModule):
        self.functions = functions

    def forward(self, x: nn.Tensor, y: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
        total, difference = self.functions["scaled_sum"](x + 1.0, y, x.shape[0])
        return self.functions["checked"](total) + y, difference


def exported(functions: nn.ExternModule):
    tensor = spec.Tensor(("n", 3))
    return Net(functions).export({"forward": {"x": tensor, "y": tensor, "$": {"param_mode": "none"}}})[0]


def compiled_object(folder: Path) -> Path:
    path = folder / "functions.o"
    command = ["cc", "-x", "c", "-", "-c", "-fPIC", "-I", find_dlpack_include_path(), "-o", str(path)]
    subprocess.run(command, input=SOURCE, text=True, check=True)
    return path


def module(kind: str, folder: Path) -> nn.ExternModule:
    return nn.SourceModule(SYMBOLS, SOURCE) if kind == "c" else nn.ObjectModule(SYMBOLS, compiled_object(folder))


@pytest.mark.parametrize("kind", ["c", "o"])
def test_calls_are_computed_between_others(kind: str, tmp_path: Path):
    mod = exported(module(kind, tmp_path))
    assert first_difference(parse(script(mod)), mod) is None
    half, difference = build(mod, num_threads=2)["forward"](X, Y)
    np.testing.assert_allclose(half, 5 * (X + 1 + Y) / 2 + Y, rtol=1e-6)
    np.testing.assert_allclose(difference, X + 1 - Y, rtol=1e-6)


def test_a_failure_is_an_error_of_the_call(tmp_path: Path):
    lib = build(exported(module("c", tmp_path)), num_threads=2)
    with pytest.raises(RuntimeError, match="the linked function checked returned 7"):
        lib["forward"](X - 9, Y)
    assert np.isfinite(lib["forward"](X, Y)[0]).all()


def test_what_cannot_be_linked_is_refused(tmp_path: Path):
    with pytest.raises(MLCError, match="does not compile\n  in   .*unknown type name"):
        build(exported(nn.SourceModule(SYMBOLS, "in f(void) { return 0; }")))
    with pytest.raises(MLCError, match=r"the object .*missing\.o does not exist"):
        build(exported(nn.ObjectModule(SYMBOLS, tmp_path / "missing.o")))
    with pytest.raises(UnsupportedError, match="functions that are linked in run on CPUs; the target is cuda"):
        build(exported(nn.SourceModule(SYMBOLS, SOURCE)), "cuda:sm_80")
    with pytest.raises(UsageError, match="no function 'other' in the module; it has scaled_sum, checked"):
        nn.SourceModule(SYMBOLS, SOURCE)["other"]
    with pytest.raises(UsageError, match="source_format is 'cpp'; expected 'c'"):
        nn.SourceModule(SYMBOLS, SOURCE, "cpp")
