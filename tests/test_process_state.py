"""Importing the project's packages leaves global state of the Python process unchanged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPT = """
import ctypes, gc, importlib, json, locale, logging, os, pkgutil, signal, sys, threading, warnings
import click, concurrent.futures, huggingface_hub, jinja2, llvmlite.binding, ml_dtypes, numpy, rich
import safetensors, tokenizers

def state():
    umask = os.umask(0)
    os.umask(umask)
    return {
        "recursion limit": sys.getrecursionlimit(),
        "switch interval": sys.getswitchinterval(),
        "meta path": [id(sys.meta_path), *map(id, sys.meta_path)],
        "path": [*sys.path, *map(str, sys.path_hooks)],
        "torch": "torch" in sys.modules,
        "environment": dict(os.environ),
        "warnings": [str(f) for f in warnings.filters] + [str(warnings.showwarning)],
        "signals": [str(signal.getsignal(s)) for s in signal.valid_signals()],
        "hooks": [str(h) for h in (sys.excepthook, sys.unraisablehook, threading.excepthook, sys.displayhook)],
        "streams": [id(s) for s in (sys.stdin, sys.stdout, sys.stderr)],
        "locale": [str(locale.getlocale(c)) for c in (locale.LC_CTYPE, locale.LC_NUMERIC)],
        "logging": [str(logging.root.handlers), logging.root.level, logging.raiseExceptions],
        "numpy": [str(numpy.geterr()), str(numpy.get_printoptions())],
        "garbage collection": [gc.isenabled(), *gc.get_threshold()],
        "threads": threading.active_count(),
        "files": [umask, os.getcwd()],
        "pythonapi": [str(getattr(ctypes.pythonapi, f).restype) for f in ("PyCapsule_GetPointer", "PyCapsule_IsValid")],
    }

OPTIONAL = ("mlc_compiler.frontend.torch", "mlc_compiler.frontend.onnx", "mlc_evaluation.workers.llama_cpp_worker")

def import_all(package):
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, package + "."):
        if module.name in OPTIONAL or module.name.endswith("__main__"):
            continue
        importlib.import_module(module.name)
        if module.ispkg:
            import_all(module.name)

before = state()
for package in "mlc_compiler mlc_runtime mlc_toolchain mlc_evaluation model_zoo quantization mlc_cli".split():
    import_all(package)
print(json.dumps({k: [before[k], v] for k, v in state().items() if v != before[k]}))
"""


def test_nothing_changes():
    ran = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == {}
