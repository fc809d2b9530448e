"""One engine of ``imported.py`` in a process of its own: ``imported_worker.py ENGINE MODEL FOLDER THREADS``.

FOLDER has MODEL.onnx and MODEL.npz (input, result). Prints the maximum relative error, then for each line of stdin the
seconds of a call: the minimum of the calls that fit into half a second, at least three. With one thread, CPU time is
measured, which excludes other programs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SECONDS = 0.5
Call = Callable[[], Any]


def of_exported_program(name: str, folder: Path, x: np.ndarray, threads: int) -> Call:
    """This project, importing PyTorch's exported program."""
    import torch
    from imported_models import model_named

    from mlc_compiler.frontend.torch import from_exported_program

    model, inputs = model_named(name)
    with torch.no_grad():
        imported = from_exported_program(torch.export.export(model, inputs))
    function = imported.jit(num_threads=threads)["main"]
    return lambda: function(x)


def of_onnx(name: str, folder: Path, x: np.ndarray, threads: int) -> Call:
    """This project, importing the ONNX model."""
    import onnx

    from mlc_compiler.frontend.onnx import from_onnx

    function = from_onnx(onnx.load(folder / f"{name}.onnx")).jit(num_threads=threads)["main"]
    return lambda: function(x)


def of_torch(name: str, folder: Path, x: np.ndarray, threads: int, compiled: bool = False) -> Call:
    """PyTorch, eager or with ``torch.compile``."""
    import torch
    from imported_models import model_named

    torch.set_num_threads(threads)
    model, inputs = model_named(name)
    run = torch.compile(model) if compiled else model

    def call() -> np.ndarray:
        with torch.no_grad():
            return run(*inputs).numpy()

    return call


def of_torch_compile(name: str, folder: Path, x: np.ndarray, threads: int) -> Call:
    """PyTorch with ``torch.compile``."""
    return of_torch(name, folder, x, threads, compiled=True)


def of_onnxruntime(name: str, folder: Path, x: np.ndarray, threads: int) -> Call:
    """ONNX Runtime with all optimizations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(folder / f"{name}.onnx", options, providers=["CPUExecutionProvider"])
    given = {session.get_inputs()[0].name: x}
    return lambda: session.run(None, given)[0]


ENGINES = {
    "mlc": of_exported_program,
    "mlc-onnx": of_onnx,
    "torch": of_torch,
    "torch.compile": of_torch_compile,
    "onnxruntime": of_onnxruntime,
}


def seconds_of(call: Call, clock: Callable[[], float]) -> float:
    """The minimum time of a call."""
    least, count, end = float("inf"), 0, time.perf_counter() + SECONDS
    while count < 3 or time.perf_counter() < end:
        begin = clock()
        call()
        least, count = min(least, clock() - begin), count + 1
    return least


def main() -> None:
    engine, name, folder, threads = sys.argv[1:]
    arrays = np.load(Path(folder) / f"{name}.npz")
    call = ENGINES[engine](name, Path(folder), arrays["x"], int(threads))
    got, wanted = np.asarray(call()), arrays["y"]
    print(float(np.max(np.abs(got - wanted) / (1 + np.abs(wanted)))), flush=True)
    clock = time.process_time if threads == "1" else time.perf_counter
    for _ in sys.stdin:
        print(seconds_of(call, clock), flush=True)


if __name__ == "__main__":
    main()
