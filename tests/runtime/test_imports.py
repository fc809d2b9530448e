"""The modules loaded by importing the runtime in a new interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(code: str, *args: str) -> str:
    command = [sys.executable, "-c", code, *args]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def modules_after(statement: str) -> set[str]:
    return set(run(f"{statement}\nimport sys; print(' '.join(sys.modules))").split())


def test_no_compiler_and_no_framework():
    loaded = modules_after("from mlc_runtime import LLM, Library, load_library")
    foreign = {"mlc_compiler", "mlc_toolchain", "model_zoo", "quantization", "llvmlite", "torch", "transformers"}
    assert "mlc_runtime.llm" in loaded
    assert not loaded & foreign


def test_names_are_loaded_when_used():
    assert not {"numpy", "tvm_ffi", "tokenizers"} & modules_after("import mlc_runtime")


def test_torch_can_be_imported_afterwards():
    assert "torch" in modules_after("from mlc_runtime import LLM\nimport torch; torch.zeros(1)")


EXCHANGE = """
import sys
for name in sys.argv[1:]:
    __import__(name)
import numpy as np, torch
from mlc_runtime.arrays import as_numpy, from_dlpack, to_tensor
x = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
assert as_numpy(x).tolist() == [[0, 1, 2], [3, 4, 5]] and str(as_numpy(x).dtype) == "bfloat16"
shared = torch.zeros(3)
torch.from_dlpack(from_dlpack(shared)[0])[1] = 7
assert shared.tolist() == [0, 7, 0]
assert torch.from_dlpack(to_tensor(np.arange(3))).tolist() == [0, 1, 2]
"""


@pytest.mark.parametrize("order", [("torch", "mlc_runtime.arrays"), ("mlc_runtime.arrays", "torch")])
def test_torch_tensors_are_accepted_in_either_order_of_imports(order: tuple[str, str]):
    run(EXCHANGE, *order)


CONCURRENT = """
import ctypes, sys, threading
results = []

def other_thread():
    sys.meta_path.append(Added)  # as packages with their own finders do
    import torch
    results.append(int(torch.ones(3).sum()))

class Added:
    find_spec = staticmethod(lambda name, path=None, target=None: None)

class Meanwhile(ctypes.CDLL):  # tvm_ffi loads its library after it looked for torch
    def __init__(self, *args, **options):
        if not results and "tvm_ffi" in sys.modules:
            results.append("torch" in sys.modules)
            thread = threading.Thread(target=other_thread)
            thread.start()
            thread.join()
        super().__init__(*args, **options)

ctypes.CDLL = Meanwhile
finders = sys.meta_path
copy = list(finders)
import mlc_runtime.arrays
assert results == [False, 3], results
assert sys.meta_path is finders and list(finders) == [*copy, Added]
"""


def test_other_threads_find_torch_while_tvm_ffi_is_imported():
    run(CONCURRENT)


FAILING = """
import sys

class NoFfi:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "tvm_ffi":
            raise ModuleNotFoundError(name=name)

finders = sys.meta_path
finders.insert(0, NoFfi)
try:
    import mlc_runtime.arrays
except ModuleNotFoundError as error:
    assert error.name == "tvm_ffi"
assert sys.meta_path is finders
import torch
"""


def test_finders_are_restored_when_the_import_fails():
    run(FAILING)
