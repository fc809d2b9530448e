"""The `check_kernels` command as a function: run every kernel of a scaled-down model in the PTX simulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlc_compiler.backends import backend_of
from mlc_compiler.backends.cuda.images import DeviceCode, compile_kernels
from mlc_compiler.backends.cuda.machine import Gpu
from mlc_compiler.interp import run_function
from mlc_compiler.ir import dtype as dt
from mlc_compiler.pipeline import pipeline, run_passes
from mlc_compiler.relax.nodes import Function, TensorStructInfo
from mlc_compiler.sim.host_functions import Device, Launched
from mlc_compiler.target import Target
from mlc_errors import UsageError
from mlc_toolchain.chat_config import FILE_NAME, read_chat_config
from mlc_toolchain.compile import AUTO, export_with_cache, model_config
from mlc_toolchain.kernel_checker import Checker, KernelCheck, relative_error
from mlc_toolchain.kernel_reference import FunctionReference, ModelReference, unscheduled
from mlc_toolchain.kernel_resources import kernel_resources
from mlc_toolchain.model_folder import config_path
from mlc_toolchain.progress import Progress, Step, silent
from mlc_toolchain.random_inputs import FEW_TOKENS, OTHER_TOKENS, RandomInputs, takes_tokens
from mlc_toolchain.small_models import shrink, shrink_gpu
from mlc_toolchain.source import resolve_source
from model_zoo import registry
from model_zoo.architecture import ModelConfig
from model_zoo.registry import export_model
from quantization.schemes import Scheme, get_scheme

Array = np.ndarray[Any, Any]
MODEL_TOLERANCE = 2e-2  # float16 activations against float32 through all layers: rounding alone is up to 1e-2
STEP_OF_CACHE = {"int8": 2**-7, "float8_e4m3fn": 2**-4}
"""Quantization step of the KV cache, added to the tolerance: an element may be rounded to the neighbouring value."""
DEFAULT_QUANTIZATION = "q4f16_1"


@dataclass(frozen=True)
class CheckOptions:
    """Options of ``check_kernels``. model: as for ``compile``, or the name of a preset. device: a CUDA target.

    quantization: None for the config's. kv_cache_dtype: as for ``compile``.
    """

    model: str | Path
    device: str = "cuda"
    quantization: str | None = None
    kv_cache_dtype: str = AUTO


@dataclass(frozen=True)
class FunctionCheck:
    """The check of an exported function: its launches, and the maximum error relative to the largest element.

    ``prefill(400)`` is a call with 400 tokens, made if calls with fewer tokens do not reach all kernels.
    """

    function: str
    launches: int
    error: float
    problem: str = ""


@dataclass(frozen=True)
class CheckReport:
    """The result of ``check_kernels``. shrunk: reduced sizes of the model as (before, after), by name."""

    target: str
    shrunk: Mapping[str, tuple[int, int]]
    kernels: list[KernelCheck]
    functions: list[FunctionCheck]

    @property
    def problems(self) -> list[str]:
        """The problems found, each with the name of its kernel or function."""
        found = [f"{k.kernel}: {k.problem}" for k in self.kernels if k.problem]
        return found + [f"{f.function}: {f.problem}" for f in self.functions if f.problem]


def check_kernels(options: CheckOptions, progress: Progress = silent) -> CheckReport:
    """Check the kernels of a model at small sizes. Raises MLCError if it cannot be compiled or simulated."""
    target = Target(options.device)
    if target.kind != "cuda":
        raise UsageError(f"--device: the target {target} has no PTX", hint="use --device cuda:sm_90a")
    config, scheme = find_model(options.model, options.quantization)
    small, shrunk = shrink(config)
    gpu = shrink_gpu(target, small)
    shrunk["multiprocessors"] = Gpu.of(target).multiprocessors, Gpu.of(gpu).multiprocessors
    return SmallModel(small, scheme, gpu, options.kv_cache_dtype).check(shrunk, progress)


def find_model(model: str | Path, quantization: str | None) -> tuple[ModelConfig, Scheme]:
    """The configuration and the scheme of a model folder or preset. Raises UsageError when there is no such model."""
    path = Path(model)
    if path.is_file() or (path / FILE_NAME).is_file():
        chat = read_chat_config(config_path(model))
        return model_config(chat, {}), get_scheme(quantization or chat.quantization)
    config = resolve_source(str(model)).config()
    architecture = registry.get(str(registry.name_of(config)))
    return architecture.config.from_hf(config), get_scheme(quantization or DEFAULT_QUANTIZATION)


class SmallModel:
    """A scaled-down model compiled for a GPU, with random weights."""

    def __init__(self, config: ModelConfig, scheme: Scheme, target: Target, kv_cache_dtype: str = AUTO):
        self.target = target
        dtype = backend_of(target).activation_dtype(scheme.model_dtype)
        self.exported = export_with_cache(config, scheme, dtype, kv_cache_dtype)
        self.precise = export_model(config, scheme, "float32", self.exported_kv_dtype)
        self.inputs = RandomInputs(self.exported, scheme)
        self.mod = run_passes(self.exported.mod, pipeline(target))
        self.code: DeviceCode = compile_kernels(self.mod, target)

    @property
    def exported_kv_dtype(self) -> str:
        return str(self.exported.states[0].describe().get("dtype", "float32"))

    def check(self, shrunk: Mapping[str, tuple[int, int]], progress: Progress) -> CheckReport:
        """Run every exported function."""
        device = Device.of(self.code.images)
        launches: list[Launched] = []
        weights, packed = self._packed(device, launches)
        resources = kernel_resources(self.code, Gpu.of(self.target))
        plain = FunctionReference(unscheduled(self.exported.mod, self.target), self.mod, packed)
        checker = Checker(self.mod, device, plain, resources)
        checker.count(launches)
        functions: list[FunctionCheck] = []
        names = [n for n, f in self.exported.mod.of_type(Function).items() if f.attrs.get("global_symbol")]
        whole = ModelReference(self.precise.mod, self.inputs.weights)
        for number, name in enumerate(names):
            progress(Step("check", number, len(names), detail=name))
            functions.append(self._check(name, checker, whole, weights))
            for tokens in OTHER_TOKENS:
                if takes_tokens(self.mod[name]) and checker.has_kernels_left(self.mod[name]):
                    functions.append(self._check(name, checker, whole, weights, tokens))
        progress(Step("check", len(names), len(names)))
        return CheckReport(str(self.target), shrunk, list(checker.rows.values()), functions)

    def _packed(self, device: Device, launches: list[Launched]) -> tuple[tuple[Array, ...], dict[int, Array]]:
        """The weights in the kernels' layouts, and the stored weights of packed ones by the packed one's address.

        launches: receives the launches of the packing functions.
        """
        weights, changed = list(self.inputs.weights), {}
        for index, function in self.mod.attrs.get("packed", {}).items():
            stored = weights[int(index)]
            weights[int(index)] = result = _result_array(self.mod[function], {})
            run_function(
                self.mod, function, stored, result, kernels=lambda f, *args: launches.extend(device.run(f, *args))
            )
            changed[result.ctypes.data] = stored
        return tuple(weights), changed

    def _check(
        self, name: str, checker: Checker, whole: ModelReference, weights: tuple[Array, ...], tokens: int = FEW_TOKENS
    ) -> FunctionCheck:
        exported = self.exported.mod[name]
        arguments, tokens = self.inputs.arguments(exported, tokens), self.inputs.tokens_of_a_call(exported, tokens)
        expected = whole.run(name, {n: a.copy() for n, a in arguments.items()})
        func = self.mod[name]
        few = self.inputs.tokens_of_a_call(exported)
        checker.entry, before = name if tokens == few else f"{name}({tokens})", checker.total
        first = len(func.params) - func.attrs["num_outputs"]
        given = [arguments.get(p.name, weights) for p in func.params[:first]]
        outputs = zip(expected, func.params[first:], strict=False)
        results = [np.zeros(e.shape, dt.to_numpy(p.struct_info.dtype)) for e, p in outputs]
        run_function(self.mod, name, *given, *results, kernels=checker.run)
        results = results or [given[func.attrs["result"]["input"]]]
        error = max(relative_error(got, wanted) for got, wanted in zip(results, expected, strict=True))
        tolerance = MODEL_TOLERANCE + STEP_OF_CACHE.get(self.exported_kv_dtype, 0.0)
        problem = f"the result differs by {error:.2g} of the largest element" if error > tolerance else ""
        return FunctionCheck(checker.entry, checker.total - before, error, problem)


def _result_array(func: Function, sizes: Mapping[int, int]) -> Array:
    info = func.params[-1].struct_info
    assert isinstance(info, TensorStructInfo) and info.shape is not None
    return np.zeros([int(s) for s in info.shape], dt.to_numpy(info.dtype))  # type: ignore[call-overload]
