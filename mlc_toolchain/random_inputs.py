"""Random arguments of a model's exported functions: weights, tokens, filled caches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from mlc_compiler.interp.evaluate import evaluate
from mlc_compiler.ir import dtype as dt
from mlc_compiler.ir.visitor import free_vars
from mlc_compiler.relax.nodes import Function, TensorStructInfo, Var
from mlc_compiler.tir import byte_scales
from mlc_errors import UnsupportedError
from model_zoo.registry import ExportedModel, ParameterInfo
from quantization.group import pack
from quantization.schemes import Scheme

Array = np.ndarray[Any, Any]
SEQUENCES, PAGES_OF_SEQUENCE, LONGEST_START, SOURCE = 3, 10, 20, 5
FEW_TOKENS, OTHER_TOKENS = 37, (400, 20)
TOKENS = "seq_len"
SIZES = {
    TOKENS: FEW_TOKENS,
    "batch_size": SEQUENCES,
    "num_seqs": SEQUENCES,
    "max_pages": PAGES_OF_SEQUENCE,
    "num_pages": SEQUENCES * PAGES_OF_SEQUENCE + 1,
    "num_slots": SEQUENCES + 1,
    "num_tokens": FEW_TOKENS,
}
"""Values of the symbolic sizes, whose names may have a state's prefix."""
SCALES = (".q_scale", ".weight_scale_inv", ".scales")
SETTINGS = ("temperature", "top_p", "min_p", "typical_p", "uniform", "presence", "frequency", "repetition")


@dataclass
class RandomInputs:
    """Random arguments for the functions of an exported model, reproducible by ``seed``.

    The lengths of sequences are not multiples of a page, and their pages are shuffled.
    """

    exported: ExportedModel
    scheme: Scheme
    seed: int = 0
    rng: np.random.Generator = field(init=False)
    sizes: Mapping[str, int] = field(default_factory=lambda: SIZES)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    @cached_property
    def weights(self) -> tuple[Array, ...]:
        """The weights in their stored layout, in the order of the model's parameters."""
        return tuple(map(self._weight, self.exported.params))

    @staticmethod
    def tokens_of_a_call(func: Function, wanted: int = FEW_TOKENS) -> int:
        """``wanted``, or the greatest number of tokens that the function takes if that is less."""
        return min(wanted, func.attrs.get("tir_var_upper_bound", {}).get(TOKENS, wanted))

    def arguments(self, func: Function, tokens: int = FEW_TOKENS) -> dict[str, Array]:
        """The arguments by name, without the weights. Raises UnsupportedError for an unknown integer input.

        tokens: the number of tokens where it is symbolic, see ``tokens_of_a_call``.
        """
        self.sizes = {**SIZES, TOKENS: self.tokens_of_a_call(func, tokens)}
        inputs = [p for p in func.params if isinstance(p.struct_info, TensorStructInfo)]
        return {p.name: self._input(p) for p in inputs}

    def _weight(self, info: ParameterInfo) -> Array:
        dtype, scheme = dt.to_numpy(info.dtype), self._scheme(info)
        if scheme.kind == "group" and info.name.endswith("q_weight"):
            of = scheme.code_words
            shape = (prod(info.shape) // of.run_words, of.run)
            codes = self.rng.integers(0, scheme.max_code, shape, np.uint8, endpoint=True)
            return pack(codes, scheme).reshape(info.shape)
        if dtype.kind in "iu" and not info.name.endswith(SCALES):
            low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
            return self.rng.integers(low, high, info.shape, dtype=dtype, endpoint=True)
        if info.name.endswith(SCALES):
            deviation = scheme.levels[: scheme.max_code + 1].std() if scheme.bits else 1.0
            values = self.rng.uniform(0.5, 1.5, info.shape) / deviation / self._depth(info) ** 0.5
            if scheme.byte_scales:
                return byte_scales.to_bytes(values)
        elif len(info.shape) == 1:
            values = self.rng.normal(size=info.shape) * 0.2 + info.name.endswith("weight")
        else:
            values = self.rng.normal(size=info.shape) / self._depth(info) ** 0.5
        return values.astype(dtype)

    def _scheme(self, info: ParameterInfo) -> Scheme:
        """The quantization scheme of the weight to which the parameter belongs."""
        form = self.exported.formats.get(f"{info.name.rpartition('.')[0]}.weight")
        return self.scheme if form is None else form.scheme

    def _depth(self, info: ParameterInfo) -> int:
        """The approximate length K of the reduction in a matmul with the weight."""
        group = self._scheme(info).group if info.name.endswith(SCALES) else 1
        return max(min(info.shape, default=1) * max(group, 1), 1)

    def _input(self, param: Var) -> Array:
        info = param.struct_info
        assert isinstance(info, TensorStructInfo) and info.shape is not None
        sizes = {id(v): self._size(v.name) for s in info.shape for v in free_vars(s)}
        shape = tuple(int(evaluate(s, sizes)) for s in info.shape)
        dtype = dt.to_numpy(info.dtype)
        makers = {**self._makers(), **(self._code_makers() if dtype == np.int8 else {})}
        make = next((m for name, m in makers.items() if param.name.endswith(name)), None)
        if make is not None:
            return make(shape).astype(dtype)
        if dtype.kind in "iu":
            raise UnsupportedError(f"no random values are known for the integer input {param.name!r}")
        return self.rng.normal(size=shape).astype(dtype)

    def _size(self, name: str) -> int:
        found = next((size for known, size in self.sizes.items() if name.endswith(known)), None)
        if found is None:
            raise UnsupportedError(f"no value is known for the symbolic size {name!r}")
        return found

    def _makers(self) -> Mapping[str, Callable[[tuple[int, ...]], Array]]:
        """Functions that make an input, by the suffix of its name."""
        rng, vocab = self.rng, self.exported.config.vocab_size
        return {
            "input_ids": lambda shape: rng.integers(0, vocab, shape),
            "page_table": lambda shape: rng.permutation(self.sizes["num_pages"])[: prod(shape)].reshape(shape),
            "slots": lambda shape: rng.permutation(self.sizes["num_slots"])[: prod(shape)].reshape(shape),
            "token_types": lambda shape: rng.integers(0, getattr(self.exported.config, "type_vocab_size", 1), shape),
            "source_lengths": lambda shape: np.full(shape, SOURCE),
            "lengths": lambda shape: _lengths(self.sizes[TOKENS])[: shape[0]],
            "token_seq": lambda shape: _sequences(shape[0]),
            "token_pos": lambda shape: _positions(shape[0]),
            "rotary_pos": lambda shape: rng.integers(0, LONGEST_START, shape),
            "patch_pos": lambda shape: rng.integers(0, LONGEST_START, shape),
            "_scales": lambda shape: rng.uniform(0.01, 0.02, shape),
            "logit_positions": lambda shape: rng.integers(0, self.sizes[TOKENS], shape),
            "token_ids": lambda shape: rng.permuted(np.tile(np.arange(vocab), (shape[0], 1)), axis=1)[:, : shape[1]],
            "token": lambda shape: rng.integers(0, vocab, shape),
            "top_k": lambda shape: rng.integers(0, vocab, shape),
            "counts": lambda shape: rng.integers(0, 3, shape),
            **{name: lambda shape: rng.uniform(0.1, 0.9, shape) for name in SETTINGS},
        }

    def _code_makers(self) -> Mapping[str, Callable[[tuple[int, ...]], Array]]:
        """As ``_makers``, for int8 arrays: normally distributed codes of keys and values."""
        return {"_pages": lambda shape: np.clip(np.rint(self.rng.normal(0, 40, shape)), -127, 127)}


def takes_tokens(func: Function) -> bool:
    """Whether the function's number of tokens is symbolic."""
    infos = [p.struct_info for p in func.params]
    shapes = [i.shape for i in infos if isinstance(i, TensorStructInfo) and i.shape is not None]
    return any(v.name.endswith(TOKENS) for shape in shapes for size in shape for v in free_vars(size))


def _sequences(tokens: int) -> Array:
    """The sequence of each token: consecutive runs of equal length."""
    return np.arange(tokens) * SEQUENCES // max(tokens, SEQUENCES)


def _positions(tokens: int) -> Array:
    """Consecutive positions within each sequence; sequences start at different positions."""
    sequence = _sequences(tokens)
    first = np.searchsorted(sequence, sequence)
    return np.arange(tokens) - first + LONGEST_START - 7 * sequence


def _lengths(tokens: int) -> Array:
    """The length of each sequence: the position after its last token, 0 without tokens."""
    ends = np.zeros(SEQUENCES, np.int64)
    np.maximum.at(ends, _sequences(tokens), _positions(tokens) + 1)
    return ends
