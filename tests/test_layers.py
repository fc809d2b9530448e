"""Import layering: packages import lower layers only, without cycles, and no test-only dependency."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# package -> the packages of ours that it may import, besides itself
BASE = frozenset({"mlc_errors", "mlc_files", "mlc_scratch", "mlc_version"})
LAYERS = {
    "mlc_errors": frozenset(),
    "mlc_files": frozenset({"mlc_errors"}),
    "mlc_scratch": frozenset(),
    "mlc_version": frozenset(),
    "mlc_compiler": BASE,
    "quantization": BASE | {"mlc_compiler"},
    "model_zoo": BASE | {"mlc_compiler", "quantization"},
    "mlc_runtime": BASE,
    "mlc_toolchain": BASE | {"mlc_compiler", "quantization", "model_zoo", "mlc_runtime"},
    "mlc_evaluation": BASE | {"mlc_compiler", "quantization", "model_zoo", "mlc_runtime", "mlc_toolchain"},
    "mlc_cli": BASE | {"mlc_compiler", "quantization", "model_zoo", "mlc_runtime", "mlc_toolchain", "mlc_evaluation"},
}

# part of mlc_compiler -> the other parts that it may import
FOUNDATION = frozenset({"ir", "tir", "relax", "script", "target", "optimization"})
COMPILER_PARTS = {
    "target": frozenset(),  # finds its kinds in ``backends``, which it loads by name
    "ir": frozenset(),
    "optimization": frozenset(),
    "tir": frozenset({"ir"}),
    "relax": frozenset({"ir", "tir"}),
    "script": frozenset({"ir", "tir", "relax"}),
    "nn": FOUNDATION | {"jit"},  # for one method, see LATE_ON_PURPOSE
    "verifier": FOUNDATION,
    "planning": FOUNDATION,
    "schedules": FOUNDATION,
    "interp": FOUNDATION,
    "sim": FOUNDATION | {"backends", "interp"},  # the driver and host functions of the CUDA back end
    "passes": FOUNDATION | {"schedules", "planning", "interp", "verifier"},  # constant folding evaluates
    "codegen": FOUNDATION,
    "backends": FOUNDATION | {"passes", "schedules", "codegen"},
    "pipeline": FOUNDATION | {"passes", "schedules", "backends"},
    "driver": FOUNDATION | {"codegen", "passes", "schedules", "backends", "pipeline", "verifier"},
    "api": FOUNDATION | {"verifier", "pipeline", "driver"},
    "jit": FOUNDATION | {"verifier", "pipeline", "api"},
    "tuning": FOUNDATION | {"codegen", "schedules", "passes", "backends", "pipeline", "driver"},
    "frontend": FOUNDATION | {"api", "jit"},
    "compat": FOUNDATION | {"api", "nn", "passes", "backends", "tuning"},
    "": frozenset(),
}

# The compiler may import the runtime's loader: `build` returns a loaded library.
LOADER = {
    ("mlc_compiler.api", "mlc_runtime.library"),
    ("mlc_compiler.api", "mlc_runtime.arrays"),
    ("mlc_compiler.jit", "mlc_runtime.library"),  # holds the library and its arguments
    ("mlc_compiler.jit", "mlc_runtime.arguments"),
    ("mlc_compiler.jit", "mlc_runtime.metadata"),
    ("mlc_compiler.tuning.worker", "mlc_runtime.library"),
    ("mlc_compiler.compat.functions", "mlc_runtime.arrays"),
    ("mlc_compiler.frontend.torch.graph", "mlc_runtime.arrays"),
    ("mlc_compiler.compat.relax", "mlc_runtime.library"),
    ("mlc_compiler.compat.relax_vm", "mlc_runtime.library"),
    ("mlc_compiler.compat.virtual_machine", "mlc_runtime.library"),
    ("mlc_compiler.compat.virtual_machine", "mlc_runtime.timing"),
}

# Imports within functions outside of the command line, with the reason.
LATE_ON_PURPOSE = {
    ("mlc_toolchain.source", "mlc_toolchain.hub"),  # huggingface_hub takes 0.2 s to import, and few sources need it
    ("mlc_toolchain.prepare", "mlc_toolchain.preparation"),  # what is prepared already starts without the compiler
    (
        "mlc_toolchain.convert_weight",
        "mlc_toolchain.calibrated_conversion",
    ),  # only calibration needs the code generators
    ("mlc_toolchain.prepare", "mlc_toolchain.checkpoint_config"),  # likewise
    ("mlc_toolchain.compile", "mlc_toolchain.packing"),  # most compilations need no runtime,
    ("mlc_toolchain.compile", "mlc_toolchain.tuning"),  # and no back ends of other targets
    ("quantization.kernels", "quantization.jit"),  # nothing is compiled for a checkpoint that is refused
    ("mlc_toolchain.prepare_plan", "mlc_toolchain.hub_model"),
    (
        "mlc_compiler.nn.module",
        "mlc_compiler.jit",
    ),  # `Module.jit` imports upwards: models are defined without a compiler
    ("mlc_runtime.ffi", "tvm_ffi"),  # imported with torch hidden
    ("mlc_compiler.backends.cuda.images", "cuda.bindings"),  # optional
    ("mlc_runtime.images", "PIL"),
    ("mlc_compiler.backends.cuda.machine", "cuda.bindings"),
}

FORBIDDEN = frozenset({"torch", "transformers", "tvm", "gguf", "onnx", "tensorflow", "jax"})

FRONT_ENDS = {"mlc_compiler.frontend.torch": "torch", "mlc_compiler.frontend.onnx": "onnx"}
"""Packages for models of another framework, which import that."""


@dataclass(frozen=True)
class Import:
    """`importer` imports `target` at `line`; typing_only: under TYPE_CHECKING; late: within a function."""

    importer: str
    target: str
    line: int
    typing_only: bool
    late: bool

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.target}"


def module_files() -> dict[str, Path]:
    """Every module of this project by its dotted name."""
    files = [path for name in LAYERS for path in [ROOT / f"{name}.py", *(ROOT / name).rglob("*.py")] if path.exists()]
    return {_dotted(path): path for path in files}


def _dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(name: str, path: Path, modules: frozenset[str]) -> Iterator[Import]:
    """The imports of one module; `from package import module` is resolved to the module."""

    def visit(node: ast.AST, typing_only: bool, late: bool) -> Iterator[Import]:
        for target in _targets(node, modules, name, path):
            yield Import(name, target, node.lineno, typing_only, late)
        late = late or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        typing_only = typing_only or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
        for child in ast.iter_child_nodes(node):
            yield from visit(child, typing_only, late)

    yield from visit(ast.parse(path.read_text(), str(path)), False, False)


def _targets(node: ast.AST, modules: frozenset[str], importer: str, path: Path) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=module, names=names, level=level):
            base = _base(module, level, importer, path)
            full = [f"{base}.{alias.name}" for alias in names]
            return [candidate if candidate in modules else base for candidate in full]
        case _:
            return []


def _base(module: str | None, level: int, importer: str, path: Path) -> str:
    """The absolute name of the package in `from ..x import y`."""
    if level == 0:
        return module or ""
    parts = importer.split(".")
    parts = parts[: len(parts) - level + (path.name == "__init__.py")]
    return ".".join([*parts, module] if module else parts)


@pytest.fixture(scope="module")
def imports() -> list[Import]:
    files = module_files()
    names = frozenset(files)
    return [found for name, path in files.items() for found in imports_of(name, path, names)]


def compiler_part(module: str) -> str:
    """The compiler package of a module: `mlc_compiler.ir.expr` -> "ir"; "" for `mlc_compiler` itself, which imports
    nothing."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def test_packages_import_downwards(imports: list[Import]):
    wrong = []
    for found in imports:
        package, target = found.importer.split(".")[0], found.target.split(".")[0]
        if (found.importer, found.target) in LOADER:
            continue
        if target in LAYERS and target != package and target not in LAYERS[package]:
            wrong.append(str(found))
    assert wrong == []


def test_parts_of_the_compiler_import_downwards(imports: list[Import]):
    wrong = []
    for found in imports:
        if not (found.importer.startswith("mlc_compiler") and found.target.startswith("mlc_compiler")):
            continue
        part, target = compiler_part(found.importer), compiler_part(found.target)
        if target != part and target not in COMPILER_PARTS[part]:
            wrong.append(str(found))
    assert wrong == []


def test_every_part_of_the_compiler_has_a_place():
    parts = {compiler_part(name) for name in module_files() if name.startswith("mlc_compiler")}
    assert parts - set(COMPILER_PARTS) == set(), "give the new part a row in COMPILER_PARTS"


def test_no_import_cycles(imports: list[Import]):
    graph: dict[str, set[str]] = {}
    for found in imports:
        if not found.typing_only and found.target != found.importer:
            graph.setdefault(found.importer, set()).add(found.target)
    assert _cycle(graph) is None


def _cycle(graph: dict[str, set[str]]) -> list[str] | None:
    """A cycle of the graph, or None."""
    finished: set[str] = set()

    def search(node: str, path: list[str]) -> list[str] | None:
        if node in path:
            return path[path.index(node) :] + [node]
        if node in finished:
            return None
        for target in sorted(graph.get(node, ())):
            if found := search(target, [*path, node]):
                return found
        finished.add(node)
        return None

    return next((found for node in sorted(graph) if (found := search(node, []))), None)


def test_no_forbidden_package(imports: list[Import]):
    found = [i for i in imports if i.target.split(".")[0] in FORBIDDEN]
    assert [str(i) for i in found if i.target.split(".")[0] != FRONT_ENDS.get(_front_end(i.importer))] == []


def test_only_users_import_front_ends(imports: list[Import]):
    found = [i for i in imports if _front_end(i.target) in FRONT_ENDS]
    assert [str(i) for i in found if _front_end(i.importer) != _front_end(i.target)] == []


def _front_end(module: str) -> str:
    return ".".join(module.split(".")[:3])


def test_heavy_imports_within_functions_only_in_the_command_line(imports: list[Import]):
    late = [f for f in imports if f.late and not f.importer.startswith("mlc_cli")]
    assert [str(f) for f in late if (f.importer, f.target) not in LATE_ON_PURPOSE] == []


def test_the_runtime_loads_no_compiler():
    listing = "import sys, mlc_runtime; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", listing], cwd=ROOT, check=True, capture_output=True, text=True)
    kept_out = {"mlc_compiler", "model_zoo", "quantization", "mlc_toolchain", "llvmlite"} | FORBIDDEN
    assert set(loaded.stdout.split()) & kept_out == set()


def test_only_one_module_imports_tvm_ffi(imports: list[Import]):
    """It hides torch meanwhile, which tvm_ffi would import."""
    assert {i.importer for i in imports if i.target.split(".")[0] == "tvm_ffi" and not i.typing_only} == {
        "mlc_runtime.ffi"
    }


def test_import_resolution_and_cycle_search():
    modules = frozenset({"pkg", "pkg.a", "pkg.a.b", "pkg.c"})
    source = "import x.y\nfrom pkg.a import b, name\nfrom . import c\nfrom ..a.b import thing\n"
    nodes = ast.parse(source).body
    seen = [_targets(node, modules, "pkg.a.b", Path("pkg/a/b.py")) for node in nodes]
    assert seen == [["x.y"], ["pkg.a.b", "pkg.a"], ["pkg.a"], ["pkg.a.b"]]
    assert _cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert _cycle({"a": {"b", "c"}, "b": {"c"}}) is None
