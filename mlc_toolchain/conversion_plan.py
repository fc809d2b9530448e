"""Plan a conversion: match a model's parameters with a checkpoint's tensors, and lay out the output."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mlc_errors import UnsupportedError, UsageError
from mlc_toolchain.calibrated_weights import Calibration
from mlc_toolchain.checkpoint_config import architecture_of
from mlc_toolchain.kept_form import keeps_form
from mlc_toolchain.mixed_bits import QUANTIZATION, Mixture
from mlc_toolchain.output_layout import OutputFormat, OutputTensor, mlc_format, safetensors_format
from mlc_toolchain.readers.base import CheckpointReader
from mlc_toolchain.weight_stream import ParameterTask, WeightStream, usable_cores
from model_zoo.architecture import Architecture
from model_zoo.weight_map import Production, Shape, WeightMap, WeightPlan
from quantization.codecs import codec
from quantization.rewrite import WeightFormat, quantize_model
from quantization.schemes import Scheme

JOB_VERSION = 2
OUTPUT_FORMATS = ("mlc", "safetensors")
F32_STORAGES = ("raw", "bf16")


@dataclass(frozen=True)
class ModelWeights:
    """The parameters of a model. quantized: format by name; dtypes: dtypes of the other parameters."""

    model_type: str
    parameters: Mapping[str, Shape]
    weight_map: WeightMap
    quantized: Mapping[str, WeightFormat]
    dtypes: Mapping[str, str]


@dataclass(frozen=True)
class Conversion:
    """A conversion that has been checked and can run; no tensor data has been read yet."""

    model: ModelWeights
    scheme: Scheme
    reader: CheckpointReader
    plan: WeightPlan
    tasks: tuple[ParameterTask, ...]
    output: OutputFormat
    calibration: Calibration | None = None
    mixture: Mixture | None = None

    def stream(self, measured: int | None = 0) -> WeightStream:
        """The stream that converts the tasks. measured: see ``WeightStream``."""
        return WeightStream(self.reader, self.scheme, measured, self.calibration)

    @property
    def peak_bytes(self) -> int:
        """Estimated memory in bytes of the parameters that are being converted or waiting to be written."""
        outputs = [task.nbytes for task in self.tasks]
        sources = [_source_bytes(task, self.reader) for task in self.tasks]
        workers = usable_cores()
        starts = range(max(1, len(self.tasks) - workers - 1))
        return max(sum(outputs[i : i + workers + 2]) + sum(sources[i : i + workers]) for i in starts)

    def job(self) -> str:
        """A hash of the conversion: equal if the same bytes are written from the same, unchanged files."""
        files = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in self.reader.files()]
        tensors = [asdict(output) for task in self.tasks for output in task.outputs]
        source = self.calibration and self.calibration.source
        inputs = [JOB_VERSION, asdict(self.scheme), str(self.plan), files, tensors, source]
        return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()


def describe_model(config: Mapping[str, Any], model_type: str, scheme: Scheme) -> ModelWeights:
    """Parameters, weight map and quantized parameters of the model that a Hugging Face config describes."""
    architecture = architecture_of(config, model_type)
    return describe(architecture, architecture.config.from_hf(config), scheme)


def describe(architecture: Architecture, model_config: Any, scheme: Scheme) -> ModelWeights:
    """As ``describe_model``, from the architecture's own configuration."""
    model = architecture.model(model_config)
    parameters = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    quantized = quantize_model(model, scheme, architecture.quantization)
    dtypes = {name: parameter.dtype for name, parameter in model.named_parameters() if name in parameters}
    return ModelWeights(architecture.name, parameters, architecture.weights(model_config), quantized, dtypes)


def plan_weights(
    model: ModelWeights,
    scheme: Scheme,
    reader: CheckpointReader,
    output_format: str = "mlc",
    f32_storage: str = "raw",
    calibration: Calibration | None = None,
    mixture: Mixture | None = None,
) -> Conversion:
    """Match a model with an opened checkpoint and lay out the files."""
    notes: dict[str, Any] = {} if calibration is None else {"Calibration": calibration.source}
    notes |= {} if mixture is None else {QUANTIZATION: mixture.scheme.name}
    check_choice("output format", output_format, OUTPUT_FORMATS)
    check_choice("f32 storage", f32_storage, F32_STORAGES)
    shapes = {name: reader.info(name).shape for name in reader.names()}
    plan = model.weight_map.resolve(model.parameters, shapes)
    narrow = f32_storage == "bf16" and output_format == "mlc"
    tasks = tuple(parameter_task(p, model, narrow) for p in plan.productions)
    _check_stored(tasks, reader, scheme)
    tensors = [output for task in tasks for output in task.outputs]
    elements = sum(reader.info(name).elements for name in reader.names() if name not in plan.unused)
    if output_format == "safetensors":
        metadata = {"format": "mlc", "quantization": scheme.name, "model_type": model.model_type}
        metadata |= {key: json.dumps(value) for key, value in notes.items()}
        output = safetensors_format(tensors, elements, metadata)
    else:
        output = mlc_format(tensors, elements, notes)
    return Conversion(model, scheme, reader, plan, tasks, output, calibration, mixture)


def parameter_task(production: Production, model: ModelWeights, narrow_f32: bool) -> ParameterTask:
    """The output tensors of a parameter."""
    form = model.quantized.get(production.name)

    def output(name: str, shape: Sequence[int], dtype: str) -> OutputTensor:
        return OutputTensor(name, tuple(shape), dtype, "bfloat16" if narrow_f32 and dtype == "float32" else dtype)

    if form is None:
        cast = output(production.name, production.shape, model.dtypes[production.name])
        return ParameterTask(production, (cast,), None)
    stem = production.name.removesuffix(".weight")
    made = codec(form.scheme).tensors(production.shape, form.scheme, form.layout)
    outputs = tuple(output(f"{stem}.{kind}", shape, dtype) for kind, (shape, dtype) in made.items())
    return ParameterTask(production, outputs, form)


def _check_stored(tasks: Sequence[ParameterTask], reader: CheckpointReader, scheme: Scheme) -> None:
    """Raises UnsupportedError if the scheme only copies a checkpoint's codes and this checkpoint stores other ones."""
    if scheme.kind == "awq":
        layers, hint = f"AWQ layers with groups of {scheme.group}", "q4f16_1 and q4f16_3 quantize any checkpoint"
    elif scheme.kind == "block" and scheme.float8_inputs:
        layers = f"float8 layers with blocks of {scheme.rows} x {scheme.group} and scales of their inputs"
        hint = "fp8_e4m3fn_bf16_block_scale leaves inputs unrounded"
    else:
        return
    for task in tasks:
        if task.format is not None and not keeps_form(task.production.value, reader, scheme):
            source = next(task.production.value.sources())
            raise UnsupportedError(
                f"{scheme.name}: {task.production.name} is not made of whole {layers}",
                where=[str(reader.file_of(source))],
                hint=hint,
            )


def check_choice(what: str, value: str, choices: Sequence[str]) -> None:
    """Raises UsageError for a value that is not in ``choices``."""
    if value not in choices:
        raise UsageError(f"unknown {what}: got {value!r}; expected one of {', '.join(choices)}")


def _source_bytes(task: ParameterTask, reader: CheckpointReader) -> int:
    return sum(reader.info(name).nbytes for name in task.production.value.sources())
