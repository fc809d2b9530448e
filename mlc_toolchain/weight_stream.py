"""Convert checkpoint tensors to output tensors, parameter by parameter, on all cores, in bounded memory."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from mlc_errors import MLCError
from mlc_toolchain.calibrated_weights import Calibration, encode_calibrated
from mlc_toolchain.kept_form import keeps_form, kept_form
from mlc_toolchain.output_layout import OutputTensor
from mlc_toolchain.readers.base import DTYPES, CheckpointReader
from model_zoo.weight_expr import CheckpointTensor, is_stacked_rows
from model_zoo.weight_map import Production
from quantization.codecs import codec
from quantization.kept_codes import encode_levels, fits
from quantization.rewrite import WeightFormat
from quantization.schemes import Scheme

IN_FLIGHT_BYTES = 256 << 20
FINITE_BLOCK = 1 << 18
SAMPLE = 1 << 17  # elements per parameter, from its first rows
EXPONENTS = {"float16": 0x7C00, "bfloat16": 0x7F80}
BF16_LIMIT = np.float32(ml_dtypes.finfo(ml_dtypes.bfloat16).max)


@dataclass(frozen=True)
class ParameterTask:
    """A model parameter and its output tensors. format: the weight format if quantized, else None."""

    production: Production
    outputs: tuple[OutputTensor, ...]
    format: WeightFormat | None

    @property
    def nbytes(self) -> int:
        return sum(output.memory_bytes for output in self.outputs)

    @property
    def kinds(self) -> list[str]:
        """The names of the outputs in the weight's format: what follows the path of the layer."""
        path = self.production.name.removesuffix("weight")
        return [output.name.removeprefix(path) for output in self.outputs]


class ErrorNorm(NamedTuple):
    """Squared norms of the quantization error and of the weights; estimates if only some rows were measured."""

    lost: float
    total: float


@dataclass(frozen=True)
class Converted:
    """The data of a task's outputs, as stored. error: quantization error, if measured."""

    arrays: tuple[np.ndarray, ...]
    error: ErrorNorm | None = None


@dataclass(frozen=True)
class WeightStream:
    """Converts tasks of one checkpoint.

    scheme: gives the dtype of unquantized parameters. calibration: input statistics for choosing codes, if any.
    measured: number of elements of a parameter, from its first rows, on which to measure its quantization error; 0 for
    none, None for all.
    """

    reader: CheckpointReader
    scheme: Scheme
    measured: int | None = 0
    calibration: Calibration | None = None

    def convert(self, task: ParameterTask) -> Converted:
        """Read, transform, quantize. Raises MLCError when values do not fit the scheme's dtype."""
        converted = self._cast(task) if task.format is None else self._quantize(task, task.format)
        for source in task.production.value.sources():
            self.reader.release(source)
        return converted

    def run(
        self, tasks: Sequence[ParameterTask], workers: int | None = None
    ) -> Iterator[tuple[ParameterTask, Converted]]:
        """Yield every task with its result, in order; later tasks are converted concurrently."""
        yield from ordered_map(self.convert, tasks, workers or usable_cores())

    def _quantize(self, task: ParameterTask, form: WeightFormat) -> Converted:
        made = self._kept_form(task, form) or self._kept_codes(task, form) or self._encode(task, form)
        error = None
        if self.measured != 0:
            decoded = codec(form.scheme).decode_rows(made, form.scheme, task.production.shape, form.layout)
            error = measured_error(self._blocks(task), decoded, task.production.shape, self.measured)
        stored = (_stored(made[kind], output) for kind, output in zip(task.kinds, task.outputs, strict=True))
        return Converted(tuple(stored), error)

    def _encode(self, task: ParameterTask, form: WeightFormat) -> dict[str, np.ndarray]:
        blocks, shape = partial(self._blocks, task), task.production.shape
        try:
            if self.calibration is not None and form.scheme.can_calibrate:
                return encode_calibrated(blocks, task.production, form, self.calibration)
            made: dict[str, np.ndarray] = codec(form.scheme).encode_rows(blocks, shape, form.scheme, form.layout)
            return made
        except ValueError:
            raise self._not_finite(task) from None

    def _kept_form(self, task: ParameterTask, form: WeightFormat) -> dict[str, np.ndarray] | None:
        """The checkpoint's tensors, if they already have the scheme's format; else None."""
        if not keeps_form(task.production.value, self.reader, form.scheme):
            return None
        outputs = {kind: DTYPES[output.dtype] for kind, output in zip(task.kinds, task.outputs, strict=True)}
        made = kept_form(task.production.value, self.reader, outputs, form.layout == "KN")
        for array in made.values():
            self._check_finite(task, array)
        return made

    def _kept_codes(self, task: ParameterTask, form: WeightFormat) -> dict[str, np.ndarray] | None:
        """The codes of a quantized checkpoint, if the scheme can represent them; else None."""
        value = task.production.value
        if form.layout != "NK" or not is_stacked_rows(value):
            return None
        names = list(value.sources())
        parts = [part for name in names if (part := self.reader.group_levels(name)) is not None]
        if len(parts) < len(names) or not all(fits(part.group, form.scheme) for part in parts):
            return None
        made = encode_levels(parts, form.scheme)
        if made is not None:
            self._check_finite(task, made["q_scale"])
        return made

    def _cast(self, task: ParameterTask) -> Converted:
        output, value = task.outputs[0], task.production.value
        dtype = DTYPES[output.dtype]
        if isinstance(value, CheckpointTensor) and self.reader.info(value.name).dtype == output.dtype:
            return Converted((_stored(self.reader.read(value.name), output),))
        made, start = np.empty(task.production.shape, dtype), 0
        with np.errstate(over="ignore"):
            for block in self._blocks(task):
                made[start : start + len(block)] = block
                start += len(block)
        if any(self.reader.info(name).dtype != output.dtype for name in value.sources()):
            self._check_finite(task, made)
        return Converted((_stored(made, output),))

    def _blocks(self, task: ParameterTask) -> Iterator[np.ndarray]:
        return task.production.value.row_blocks(self.reader.read, self.reader.read_rows)

    def _check_finite(self, task: ParameterTask, values: np.ndarray) -> None:
        if not all_finite(values):
            raise self._not_finite(task)

    def _not_finite(self, task: ParameterTask) -> MLCError:
        file = self.reader.file_of(next(task.production.value.sources()))
        name, holder, larger = task.production.name, self.scheme.model_dtype, "a bf16 or f32 scheme"
        if task.format is not None and np.isfinite(task.format.scheme.largest_weight):
            holder, larger = task.format.scheme.name, "a scheme with float16 scales, such as q4f16_nl,"
        return MLCError(
            f"{name} has values that {holder} cannot hold (too large, infinite or NaN)",
            where=[str(file)],
            hint=f"{larger} holds larger values; NaN means that the checkpoint is damaged",
        )


def ordered_map(work: Callable, tasks: Iterable, workers: int) -> Iterator[tuple]:
    """Yield (task, work(task)) in the order of ``tasks``, computed concurrently.

    At most IN_FLIGHT_BYTES of tasks, by their ``nbytes``, run ahead.
    """
    waiting: deque[tuple[Any, Future]] = deque()
    ahead = 0
    with ThreadPoolExecutor(workers, thread_name_prefix="convert") as pool:
        try:
            for task in tasks:
                while waiting and (len(waiting) > workers or ahead + task.nbytes > IN_FLIGHT_BYTES):
                    ahead -= waiting[0][0].nbytes
                    yield _result(waiting.popleft())
                ahead += task.nbytes
                waiting.append((task, pool.submit(work, task)))
            while waiting:
                yield _result(waiting.popleft())
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def measured_error(
    original: Iterable[np.ndarray], decoded: Iterable[np.ndarray], shape: Sequence[int], elements: int | None = None
) -> ErrorNorm:
    """The error of decoded rows of a weight of ``shape`` relative to the original ones.

    The blocks of both may have different sizes. elements: number of elements to measure, extrapolated to the others.
    """
    lost = total = 0.0
    count, size = 0, prod(shape)
    rows = _rows(original)
    for block in decoded:
        exact = np.concatenate([next(rows) for _ in range(len(block))]).reshape(block.shape).astype(np.float32)
        lost += float(np.square(exact - block, dtype=np.float64).sum())
        total += float(np.square(exact, dtype=np.float64).sum())
        count += block.size
        if elements is not None and count >= elements:
            break
    share = count / size if size else 1.0
    return ErrorNorm(lost / share, total / share)


def relative(errors: Iterable[ErrorNorm]) -> float:
    """|w - w'| / |w| in the Euclidean norm over all of ``errors``."""
    lost, total = (sum(column) for column in zip(*errors))
    return (lost / total) ** 0.5 if total else 0.0


def all_finite(values: np.ndarray) -> bool:
    """Whether all elements are finite; 16-bit floats are tested by their exponent bits, which is much faster."""
    mask = np.uint16(EXPONENTS.get(values.dtype.name, 0))
    if not mask:
        return bool(np.isfinite(values).all())
    bits = values.reshape(-1).view(np.uint16)
    blocks = (bits[start : start + FINITE_BLOCK] for start in range(0, bits.size, FINITE_BLOCK))
    return not any(((block & mask) == mask).any() for block in blocks)


def usable_cores() -> int:
    return len(os.sched_getaffinity(0))


def _rows(blocks: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    for block in blocks:
        yield from block.reshape(prod(block.shape[:-1]), block.shape[-1])


def _result(waiting: tuple[object, Future]) -> tuple:
    return waiting[0], waiting[1].result()


def _stored(value: np.ndarray, output: OutputTensor) -> np.ndarray:
    """The array in its dtype on disk, contiguous."""
    value = np.ascontiguousarray(value)
    return value if output.stored == output.dtype else float32_to_bfloat16(value)


def float32_to_bfloat16(value: np.ndarray) -> np.ndarray:
    """Round to nearest even; values beyond the largest bfloat16 are truncated to it, as MLC's tools do."""
    rounded = value.astype(ml_dtypes.bfloat16)
    beyond = np.abs(value) >= BF16_LIMIT
    if beyond.any():
        bits = value.view(np.uint32) >> np.uint32(16)
        rounded[beyond] = bits.astype(np.uint16)[beyond].view(ml_dtypes.bfloat16)
    return rounded
