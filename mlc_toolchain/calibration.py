"""Measure statistics of a model's layer inputs on a text, with a library that this compiler builds.

The library has 8-bit weights: their divergence is about a hundredth of that of 4 bits, and the model takes
a quarter of the memory and of the time that it takes in float32.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np

from mlc_compiler.driver import build_library
from mlc_compiler.ir.module import IRModule
from mlc_compiler.nn import Module, Tensor, spec
from mlc_compiler.target import Target
from mlc_errors import MLCError, UnsupportedError, UsageError
from mlc_runtime.decoder import HIDDEN_STATES, Decoder
from mlc_runtime.library import Library
from mlc_runtime.weights import TensorCache
from mlc_toolchain.calibrated_weights import Calibration, StoredArrays
from mlc_toolchain.library_metadata import model_metadata
from mlc_toolchain.own_text import sampled
from mlc_toolchain.progress import Progress, Step, silent
from mlc_toolchain.source_base import ModelSource
from mlc_toolchain.source_tokenizer import source_tokenizer
from mlc_toolchain.text_files import read_text
from model_zoo.architecture import Architecture
from model_zoo.registry import ExportedModel, ParameterInfo
from quantization.observe import Observer, Statistic, inputs, largest_magnitudes, sum_of_squares
from quantization.schemes import SCHEMES

FUNCTION = "calibrate"
Results = Callable[[Callable[[], Tensor], Observer], list[Tensor]]
"""Builds a function's results from the logits [..., tokens, V] (traced when called) and an observer of layer inputs."""
SCHEME = SCHEMES["q8f16_1"]
TOKENS = 2048
"""Tokens of a text that mean squares are taken over; ``docs/accuracy.md`` compares them with more."""
MANY_TOKENS = 8192
"""Tokens for statistics of more numbers: matrices X^T X, largest magnitudes, divergences of mixtures."""
OWN_TEXTS = 8  # texts of PART tokens that the model writes, together
PART = 512  # tokens that are read from an empty cache
PRODUCT_BYTES = 1 << 30  # size of the matrices X^T X that are summed in one pass over the text


def calibration_ids(name: str, source: ModelSource, most: int) -> tuple[Sequence[int], str]:
    """At most ``most`` token ids of the text that ``--calibration`` names, and a description of the text.

    auto is Python's language reference, English prose with some code that every Python installation has. Raises
    UsageError for a source without a tokenizer, MLCError for a text of less than PART tokens.
    """
    tokenizer = source_tokenizer(source)
    if tokenizer is None:
        raise UsageError(f"--calibration: {source.path} has no tokenizer", hint="use --imatrix")
    text, where = _text(name)
    ids = tokenizer.tokenizer.encode(text, add_special_tokens=False).ids
    if len(ids) < PART:
        raise MLCError(f"--calibration: got {len(ids)} tokens; expected at least {PART}", where=[where])
    return ids[: min(most, len(ids) - len(ids) % PART)], where


def _text(name: str) -> tuple[str, str]:
    if name != "auto":
        return read_text(Path(name)), name
    return language_reference(), "Python's language reference"


def language_reference() -> str:
    """The sections of Python's language reference (English prose with some code), in the order of their names."""
    return "\n\n".join(topics[key] for key in sorted(topics))


@dataclass(frozen=True)
class CalibratedModel:
    """A model with weights of ``SCHEME`` in ``folder``, to which its libraries and statistics are written, too.

    progress: called with the number of tokens that have been read.
    """

    architecture: Architecture
    config: Any
    folder: Path
    progress: Progress = silent

    def calibrate(self, ids: Sequence[int], feedback: bool) -> Calibration:
        """Statistics over token ids. feedback: also measure ``products``.

        Needs memory for the weights and at most PRODUCT_BYTES. Raises UnsupportedError for a model that does not
        generate text.
        """
        products: Mapping[str, np.ndarray] = {}
        if feedback:
            products, sums = self._products(ids)
        else:
            sums = self._totals(sum_of_squares, self.names, ids)
        squares = {name: (total / len(ids)).astype(np.float32) for name, total in sums.items()}
        return Calibration(squares, products, _source(ids))

    def measure_inputs(self, ids: Sequence[int]) -> Calibration:
        """The maximum magnitudes of the layers' inputs over token ids; otherwise as ``calibrate``."""
        rows = self._totals(largest_magnitudes, self.names, ids, combine=np.maximum)
        return Calibration({}, {}, _source(ids), {name: row.max() for name, row in rows.items()})

    def own_text(self, first: Sequence[int]) -> list[int]:
        """Token ids of texts of PART tokens that the model writes after each of the first tokens, at most OWN_TEXTS."""

        def progress(place: int) -> None:
            self.progress(Step("write", len(first) * place, len(first) * PART, "tokens"))

        with self.decoder(None) as decoder:
            made: list[int] = sampled(decoder, first, PART, progress).reshape(-1).tolist()
        return made

    @property
    def names(self) -> list[str]:
        return list(self._widths)

    @cached_property
    def _widths(self) -> dict[str, int]:
        """The number of inputs K of each quantized parameter [..., K], in the order of the model's layers."""
        model = self.architecture.model(self.config)
        widths = {name: int(parameter.shape[-1]) for name, parameter in model.named_parameters()}
        return {name: widths[name] for name in Observer(model, SCHEME, self.architecture.quantization).names}

    def _products(self, ids: Sequence[int]) -> tuple[StoredArrays, dict[str, np.ndarray]]:
        """The matrices X^T X of the layers' inputs, by parameter, and their diagonals."""
        made, diagonals = {}, {}
        for names in _fitting({name: 4 * width**2 for name, width in self._widths.items()}, PRODUCT_BYTES):
            for name, total in self._totals(inputs, names, ids, _Products()).items():
                made[name], diagonals[name] = self.folder / f"{name}.npy", np.diagonal(total).copy()
                np.save(made[name], total)
        return StoredArrays(made), diagonals

    def _totals(
        self,
        statistic: Statistic,
        names: Sequence[str],
        ids: Sequence[int],
        term: Callable[[np.ndarray], np.ndarray] = lambda row: row,
        combine: np.ufunc = np.add,
    ) -> dict[str, np.ndarray]:
        """``term(statistic)`` reduced over all tokens with ``combine``, for the parameters whose layers ran."""
        recorded: list[str] = []

        def statistics(logits: Callable[[], Tensor], observer: Observer) -> list[Tensor]:
            observer.start(statistic, names)
            logits()
            recorded[:] = [name for name, made in observer.recorded.items() for _ in made]
            return [tensor for made in observer.recorded.values() for tensor in made]

        totals: dict[str, np.ndarray] = {}
        with self.decoder(statistics) as model:
            for start in range(0, len(ids), PART):
                self.progress(Step("calibrate", start, len(ids), "tokens"))
                for arrays in model.results(FUNCTION, ids[start : start + PART]):
                    for name, array in zip(recorded, arrays, strict=True):
                        made = term(array)
                        totals[name] = combine(totals[name], made, out=totals[name]) if name in totals else made.copy()
            self.progress(Step("calibrate", len(ids), len(ids), "tokens"))
        return totals

    @contextmanager
    def decoder(self, results: Results | None) -> Iterator[Decoder]:
        """Compile the model; closed at the end of the block.

        results: those of its function FUNCTION; None for a model without it that decodes batches instead.
        """
        model = Decoder(Library(self._build(results)), TensorCache(self.folder))
        try:
            yield model
        finally:
            model.close()

    def _build(self, results: Results | None) -> Path:
        model = self.architecture.model(self.config)
        observer = Observer(model, SCHEME, self.architecture.quantization)
        states = tuple(self.architecture.states(self.config, "float32"))
        functions = self.architecture.entry_points(model, self.config, states, "float32")
        if not _continues_text(self.architecture, model, functions):
            raise UnsupportedError(
                f"--calibration: {self.architecture.name} models do not continue text",
                hint="leave the option out, or give the statistics of llama.cpp with --imatrix",
            )
        hidden = functions[HIDDEN_STATES]

        exported = {"embed": functions["embed"]}
        if results is None:
            exported |= {name: functions[name] for name in ("decode", "batch_decode")}
        else:

            def observed(*arguments: Any) -> list[Tensor]:
                return results(lambda: model.logits(hidden.call(*arguments)), observer)  # type: ignore[attr-defined]

            exported[FUNCTION] = replace(hidden, call=observed)
        mod, parameters = model.export(spec.ModuleSpec(exported))
        infos = tuple(ParameterInfo(name, p.shape, p.dtype) for name, p in parameters.items())
        described = ExportedModel(mod, infos, states, self.architecture, self.config)

        def metadata(lowered: IRModule) -> dict[str, Any]:
            return model_metadata(described, SCHEME.name, lowered)

        return build_library(mod, Target("cpu"), self.folder / "calibrate.so", metadata=metadata).output


class _Products:
    """X^T X of inputs X [tokens, K]; those of one size are in the same memory, since new pages take time."""

    def __init__(self) -> None:
        self._memory: dict[int, np.ndarray] = {}

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        size = rows.shape[1]
        if size not in self._memory:
            self._memory[size] = np.empty((size, size), np.float32)
        return np.matmul(rows.T, rows, out=self._memory[size])


def can_calibrate(architecture: Architecture, config: Any) -> bool:
    """Whether a model can be calibrated on a text: it is a decoder that generates text."""
    model, states = architecture.model(config), tuple(architecture.states(config, "float32"))
    functions = architecture.entry_points(model, config, states, "float32")
    return _continues_text(architecture, model, functions)


def _continues_text(architecture: Architecture, model: Module, functions: Container[str]) -> bool:
    return architecture.task == "chat" and HIDDEN_STATES in functions and hasattr(model, "logits")


def _source(ids: Sequence[int]) -> dict[str, Any]:
    digest = hashlib.sha256(np.asarray(ids, np.int32).tobytes()).hexdigest()
    return {"kind": "text", "tokens": len(ids), "sha256_of_ids": digest}


def small_chunks(config: Any) -> Any:
    """The configuration for texts of PART tokens that are read one at a time and written together."""
    sizes = {"prefill_chunk_size": PART, "max_batch_size": OWN_TEXTS, "context_window_size": PART}
    known = {f.name for f in fields(config)}
    return replace(config, **{name: size for name, size in sizes.items() if name in known})


def _fitting(sizes: Mapping[str, int], limit: int) -> Iterator[list[str]]:
    """Split names, in order, into lists whose sizes sum to at most ``limit``; a larger one is a list of its own."""
    names: list[str] = []
    total = 0
    for name, size in sizes.items():
        if names and total + size > limit:
            yield names
            names, total = [], 0
        names.append(name)
        total += size
    if names:
        yield names
