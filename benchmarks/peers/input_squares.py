"""Mean squares of the inputs of a GGUF model's matrices, as llama.cpp computes them, in its environment.

python -m peers.input_squares FILE.gguf IDS.json PART OUTPUT.dat

IDS.json has token ids, which are read in parts of PART tokens, each with an empty cache. This is what llama.cpp's
imatrix tool measures; its Python package has no such program.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

import llama_cpp
import numpy as np

from peers import importance_files
from peers.llama_batch import decode

FLOAT32 = 0  # GGML_TYPE_F32
SOURCES = 10  # GGML_MAX_SRC


class Tensor(ctypes.Structure):
    """``struct ggml_tensor`` of ggml.h."""


Tensor._fields_ = [
    ("type", ctypes.c_int),
    ("buffer", ctypes.c_void_p),
    ("shape", ctypes.c_int64 * 4),
    ("strides", ctypes.c_size_t * 4),
    ("op", ctypes.c_int),
    ("op_params", ctypes.c_int32 * 16),
    ("flags", ctypes.c_int32),
    ("sources", ctypes.POINTER(Tensor) * SOURCES),
    ("view_source", ctypes.c_void_p),
    ("view_offset", ctypes.c_size_t),
    ("data", ctypes.c_void_p),
    ("name", ctypes.c_char * 64),
]


class Squares:
    """Sums of squares of the second operands of products with matrices ``blk.*.weight``."""

    def __init__(self) -> None:
        self.sums: dict[str, np.ndarray] = {}

    def observe(self, address: int, asks: bool, _: object) -> bool:
        """llama.cpp's callback: first whether to see an operation, then its result."""
        node = Tensor.from_address(address)
        if not (node.sources[0] and node.sources[1]):
            return False
        matrix, x = node.sources[0].contents, node.sources[1].contents
        name = matrix.name.decode()
        if not (name.startswith("blk.") and name.endswith(".weight") and x.type == FLOAT32):
            return False
        if not asks:
            k, rows = x.shape[0], x.shape[1] * x.shape[2] * x.shape[3]
            values = np.ctypeslib.as_array(ctypes.cast(x.data, ctypes.POINTER(ctypes.c_float)), (rows, k))
            total = np.square(values.astype(np.float64)).sum(axis=0)
            self.sums[name] = self.sums.get(name, 0) + total
        return True


def main() -> None:
    file, ids_file, part, output = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    ids, squares = json.loads(ids_file.read_text()), Squares()
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(file.encode(), llama_cpp.llama_model_default_params())
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx = settings.n_batch = settings.n_ubatch = part
    callback = llama_cpp.ggml_backend_sched_eval_callback(squares.observe)
    settings.cb_eval = callback
    context = llama_cpp.llama_init_from_model(model, settings)
    for start in range(0, len(ids), part):
        decode(context, ids[start : start + part])
    means = {name: (total / len(ids)).astype(np.float32) for name, total in squares.sums.items()}
    importance_files.write(means, output)


if __name__ == "__main__":
    main()
