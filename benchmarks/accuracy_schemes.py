"""Dequantized weights of ``convert_weight``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from accuracy_reference import Weights

from mlc_toolchain.calibrated_weights import Calibration
from mlc_toolchain.conversion_plan import Conversion, plan_weights
from mlc_toolchain.convert_weight import ConvertOptions, calibrated, plan_conversion
from mlc_toolchain.readers.base import CheckpointReader
from model_zoo.weight_expr import CheckpointTensor, Concat, Expr, ScaledAxis
from quantization.codecs import codec


class OurWeights:
    """This project's weights of one checkpoint. Calibration statistics are shared by all schemes."""

    def __init__(self, folder: Path, scratch: Path):
        self._options = ConvertOptions(str(folder), "q4f16_1", scratch / "unused")
        self._stack = ExitStack()

    def __enter__(self) -> OurWeights:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @cached_property
    def calibration(self) -> Calibration:
        """The statistics of ``--calibration auto --method gptq``."""
        return self._measured("gptq")

    @cached_property
    def plain_calibration(self) -> Calibration:
        """Those of ``--calibration auto``, of fewer tokens."""
        return self._measured("search")

    def _measured(self, method: str) -> Calibration:
        options = replace(self._options, calibration="auto", method=method)
        found = self._stack.enter_context(calibrated(plan_conversion(options), options)).calibration
        assert found is not None
        return found

    def weights(self, name: str) -> Weights:
        """The weights of a scheme with ``+`` and options of ConvertOptions: ``q4f16_nl+calibration=auto+bits=4.6``."""
        scheme, *settings = name.split("+")
        given: dict[str, Any] = dict(setting.split("=", 1) for setting in settings)
        options = replace(self._options, quantization=scheme, **given)
        with self._calibrated(plan_conversion(options), options) as conversion:
            return Weights(dict(decoded(conversion)), conversion.output.nbytes)

    def _calibrated(self, planned: Conversion, options: ConvertOptions) -> AbstractContextManager[Conversion]:
        if options.calibration is None or options.bits is not None or options.method == "awq":
            return calibrated(planned, options)
        known = self.calibration if options.method == "gptq" else self.plain_calibration
        return nullcontext(plan_weights(planned.model, planned.scheme, planned.reader, calibration=known))


def decoded(conversion: Conversion) -> Iterator[tuple[str, np.ndarray]]:
    """The dequantized weights of a conversion, by the names of the checkpoint's tensors."""
    for task, converted in conversion.stream().run(conversion.tasks):
        array, form, shape = converted.arrays[0], task.format, task.production.shape
        if form is not None:
            made = dict(zip(task.kinds, converted.arrays, strict=True))
            array = np.concatenate(list(codec(form.scheme).decode_rows(made, form.scheme, shape, form.layout)))
        yield from by_source(task.production.value, array, conversion.reader)


def by_source(value: Expr, array: np.ndarray, reader: CheckpointReader) -> Iterator[tuple[str, np.ndarray]]:
    """Split a parameter that concatenates checkpoint tensors along its rows into these tensors."""
    match value:
        case CheckpointTensor(name):
            yield name, array
        case ScaledAxis((part,), factors, axis):
            unscaled = array.astype(np.float32) / factors.reshape(-1, *[1] * (array.ndim - 1 - axis))
            yield from by_source(part, unscaled, reader)
        case Concat(parts, axis=0):
            ends = np.cumsum([reader.info(next(part.sources())).shape[0] for part in parts])
            for part, rows in zip(parts, np.split(array, ends[:-1]), strict=True):
                yield from by_source(part, rows, reader)
        case _:
            raise RuntimeError(f"cannot take {value} apart")
